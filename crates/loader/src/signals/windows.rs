//! Where a handler has interrupted its thread, and what there is to do in the few instructions
//! between host and guest. Read the theory of operation of `enter` first.

use crate::block::{Block, Frame};
use crate::enter::{EntryPoint, entries};
use crate::guest::guest;
use crate::trap;
use core::ffi::c_int;
use libc::{
    REG_EFL, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX,
    REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP, ucontext_t,
};
use sojourn_abi::door::RESTART;

/// Reads a register from a frame.
type ReadFn = fn(&Frame) -> usize;

/// The guest's registers at the end of a call, and where a frame has them.
const WAY: [(i32, ReadFn); 17] = [
    (REG_R15, |frame| frame.r15),
    (REG_R14, |frame| frame.r14),
    (REG_R13, |frame| frame.r13),
    (REG_R12, |frame| frame.r12),
    (REG_RBP, |frame| frame.rbp),
    (REG_RBX, |frame| frame.rbx),
    (REG_R9, |frame| frame.r9),
    (REG_R8, |frame| frame.r8),
    (REG_R10, |frame| frame.r10),
    (REG_RDX, |frame| frame.rdx),
    (REG_RSI, |frame| frame.rsi),
    (REG_RDI, |frame| frame.rdi),
    (REG_RAX, |frame| frame.rax),
    (REG_RCX, |frame| frame.back),
    (REG_RIP, |frame| frame.back),
    (REG_RSP, |frame| frame.rsp),
    (REG_EFL, Frame::all_flags),
];

/// Where a thread is that a handler has interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadPosition {
    /// In the guest's code, or in code of the loader's that has nothing on the host's stack.
    Guest,
    /// In a call, or on the way to it.
    Call,
    /// On the way out, where it looks again for signals that were put off.
    Leaving,
    /// On the way to a call that the guest makes itself, with the guest's FS base: it looks again.
    Passing,
}

/// Returns where the thread is. If it is on the way out, it is sent back to the look.
pub(super) fn place(interrupted: &mut ucontext_t, block: &mut Block, fs: usize) -> ThreadPosition {
    let registers = &mut interrupted.uc_mcontext.gregs;
    let rip = registers[REG_RIP as usize] as usize;
    let rsp = registers[REG_RSP as usize] as usize;
    let is_inside = fs == block.host_fs;
    if !is_inside && !block.is_on_host(rsp) {
        return ThreadPosition::Guest;
    }
    let is_within = |one: &&EntryPoint| (one.start..one.end).contains(&rip);
    let Some(entry) = entries().iter().find(is_within).copied() else {
        // SAFETY: during a call the block's frame is valid.
        block.number = unsafe { (*block.frame).rax };
        return ThreadPosition::Call;
    };
    if rip >= entry.check {
        registers[REG_RIP as usize] = entry.check as i64;
        return ThreadPosition::Leaving;
    }
    // On the way in the stack pointer is the frame's address; the call's number is in it soon.
    let frame = rsp as *const Frame;
    block.number = match rip >= entry.kept {
        // SAFETY: the frame is on this thread's stack.
        true => unsafe { (*frame).rax },
        false => registers[REG_RAX as usize] as usize,
    };
    if entry.passes(rip) {
        registers[REG_RIP as usize] = entry.pass as i64;
        return ThreadPosition::Passing;
    }
    ThreadPosition::Call
}

/// Completes the registers of a thread that has the guest's stack pointer, but not all registers
/// yet: the signals that were put off are being unblocked.
pub(super) fn complete(interrupted: &mut ucontext_t, block: &mut Block) {
    let rip = interrupted.uc_mcontext.gregs[REG_RIP as usize] as usize;
    if let Some(entry) = entries().iter().find(|one| (one.alternate..one.stub).contains(&rip)) {
        begin_again(interrupted, block, rip >= entry.blocking);
    }
    if !entries().iter().any(|one| (one.late..one.end).contains(&rip)) {
        return;
    }
    // SAFETY: the latest call's frame, below which nothing has been written.
    let frame = unsafe { &*block.frame };
    for (register, value) in WAY {
        interrupted.uc_mcontext.gregs[register as usize] = value(frame) as i64;
    }
    // SAFETY: the kernel's context; its set is the first word of the C library's.
    unsafe { *mask_at(interrupted) &= !block.due };
    block.due = 0;
}

/// Has a thread begin its call again that was about to block all signals: the handler's own calls
/// use the same place for registers. `are_kept`: they are there.
fn begin_again(interrupted: &mut ucontext_t, block: &Block, are_kept: bool) {
    let registers = &mut interrupted.uc_mcontext.gregs;
    if are_kept {
        let kept = [REG_RAX, REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R11];
        for (register, value) in kept.into_iter().zip(block.kept) {
            registers[register as usize] = value as i64;
        }
    }
    registers[REG_RIP as usize] = trap::again(registers[REG_R11 as usize] as usize) as i64;
}

/// Has the thread leave its call at once. The call begins again when the handler has returned,
/// unless a filter has refused it (`SIGSYS`, seccomp(2)): then the handler sets the result.
pub(super) fn give_up(interrupted: &mut ucontext_t, block: &mut Block, signal: c_int) {
    let start = guest().entry;
    let Some(entry) = entries().iter().find(|one| one.start == start).copied() else { return };
    let frame = block.frame;
    let result = match signal {
        libc::SIGSYS => block.number,
        _ => (-(RESTART as isize)) as usize,
    };
    // SAFETY: during a call the block's frame is valid.
    unsafe { (*frame).rax = result };
    interrupted.uc_mcontext.gregs[REG_RSP as usize] = frame as i64;
    interrupted.uc_mcontext.gregs[REG_RIP as usize] = entry.check as i64;
}

/// The kernel's set of blocked signals, which is the first word of the C library's larger one.
pub(super) fn mask_at(context: *mut ucontext_t) -> *mut u64 {
    // SAFETY: computes an address only.
    unsafe { (&raw mut (*context).uc_sigmask).cast() }
}
