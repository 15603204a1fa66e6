//! Handlers that interrupt the few instructions between guest and host: these instructions are
//! undone or completed, so that the interrupted code is the guest's. Read the theory of operation
//! of `enter` first.

use crate::block::{Block, Frame};
use crate::enter::{Entry, entries};
use libc::{
    REG_EFL, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX,
    REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP, ucontext_t,
};

/// Reads a register from a frame.
type ReadFn = fn(&Frame) -> usize;

/// The guest's registers at a call, but for the instruction pointer, and where a frame has them.
pub(super) const WAY: [(i32, ReadFn); 16] = [
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
    (REG_RSP, |frame| frame.rsp),
    (REG_EFL, Frame::all_flags),
];

/// Moves the interrupted thread, which has the guest's FS base, to an instruction of the guest's or
/// to the beginning of `enter`.
pub(super) fn leave(interrupted: &mut ucontext_t, block: &Block) {
    let registers = &mut interrupted.uc_mcontext.gregs;
    let rip = registers[REG_RIP as usize] as usize;
    let rsp = registers[REG_RSP as usize] as usize;
    let is_within = |one: &&Entry| (one.start..one.end).contains(&rip);
    if !block.is_on_host(rsp) {
        return;
    }
    let Some(entry) = entries().iter().find(is_within).copied() else { return };
    // SAFETY: between guest and host the stack pointer is the address of a frame.
    let frame = unsafe { &*(rsp as *const Frame) };
    let mut set = |register: i32, value: usize| registers[register as usize] = value as i64;
    if (entry.saving..entry.inside).contains(&rip) {
        if rip >= entry.kept {
            set(REG_RAX, frame.rax);
            set(REG_RCX, frame.back);
        }
        if rip >= entry.based {
            set(REG_RBX, frame.rbx);
        }
        // `enter` keeps the guest's stack pointer in `r11`.
        let stack = interrupted.uc_mcontext.gregs[REG_R11 as usize];
        interrupted.uc_mcontext.gregs[REG_RSP as usize] = stack;
        interrupted.uc_mcontext.gregs[REG_RIP as usize] = entry.start as i64;
    } else if rip >= entry.leaving {
        WAY.iter().for_each(|(register, value)| set(*register, value(frame)));
        set(REG_RIP, frame.back);
    }
}
