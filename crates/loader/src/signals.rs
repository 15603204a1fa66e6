//! The guest's signal handlers.
//!
//! # Theory of operation
//! The kernel is given one of some hundred entry points in the place of each handler. An entry
//! point changes to the host's FS base, with all signals blocked, and asks the preload library,
//! which has the handler run now, or later if the thread is in the middle of something
//! (`Door::signal`). The handler itself runs as the kernel would have run it: with the guest's FS
//! base, on the guest's own stack or its alternate one, with the mask that the guest asked for.
//!
//! While it runs, the host's stack below is free for its calls, as far as it is not in use by the
//! call that was interrupted (`Block::next`). A handler that jumps out leaves that mark low;
//! `reclaim` puts it back once the guest's stack shows that the call is dead.

mod actions;
mod windows;

use crate::block::{Block, FRAME, Frame, here};
use crate::enter;
use crate::guest::guest;
use crate::raw;
use actions::Handler;
pub(crate) use actions::act;
use core::arch::{asm, global_asm};
use core::ffi::{c_int, c_void};
use libc::{REG_RSP, ucontext_t};
use sojourn_abi::door::Signal;

/// Bytes below the stack pointer that a program may use without saying so.
const RED_ZONE: usize = 128;
/// Bytes left between what is in use of the host's stack and the next frame.
const MARGIN: usize = 512;

global_asm!(
    ".pushsection .text.sojourn_handlers, \"ax\", @progbits",
    ".p2align 4",
    ".globl sojourn_handlers, sojourn_restorer, sojourn_run_guest",
    ".hidden sojourn_handlers, sojourn_restorer, sojourn_run_guest",
    "sojourn_handlers:",
    ".set sojourn_handler, 0",
    ".rept {count}",
    ".p2align 4",
    ".byte 0xb9",
    ".long sojourn_handler",
    "jmp 5f",
    ".set sojourn_handler, sojourn_handler + 1",
    ".endr",
    "5:",
    "push rbp",
    "mov rbp, rsp",
    "rdfsbase r8",
    "push r8",
    "push r8",
    "mov rax, gs:[16]",
    "wrfsbase rax",
    "call {on_signal}",
    "mov rax, [rbp - 8]",
    "wrfsbase rax",
    "leave",
    "ret",
    ".p2align 4",
    // The nop before it is for unwinders, which look one byte back.
    "nop",
    "sojourn_restorer:",
    "mov rax, 15",
    "syscall",
    "ud2",
    // run_guest(signal, info, context, handler, stack or 0, mask): with the guest's FS base set.
    ".p2align 4",
    "sojourn_run_guest:",
    "push rbp",
    "mov rbp, rsp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push r15",
    "mov r12, rdi",
    "mov r13, rsi",
    "mov r14, rdx",
    "mov r15, rcx",
    "test r8, r8",
    "jz 2f",
    "mov rsp, r8",
    "2: and rsp, -16",
    // The mask, from where the guest may be interrupted again.
    "push r9",
    "push r9",
    "mov edi, 2",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "mov rdi, r12",
    "mov rsi, r13",
    "mov rdx, r14",
    "xor eax, eax",
    "call r15",
    "mov qword ptr [rsp], -1",
    "mov edi, 2",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "lea rsp, [rbp - 48]",
    "pop r15",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".popsection",
    count = const actions::ENTRIES,
    on_signal = sym on_signal,
);

unsafe extern "C" {
    fn sojourn_run_guest(
        signal: c_int,
        info: *mut c_void,
        context: *mut c_void,
        handler: usize,
        stack: usize,
        mask: u64,
    );
}

/// One handler about to run.
struct Coming {
    signal: c_int,
    info: *mut c_void,
    context: *mut ucontext_t,
    handler: Handler,
    block: *mut Block,
    /// The guest's FS base and stack pointer where it was interrupted.
    guest_fs: usize,
    guest_rsp: usize,
    /// The host's stack is free below.
    free_below: usize,
    is_host_stack: bool,
}

/// Every handler of the guest's begins here, with all signals blocked; `index` says which, `fs` is
/// the FS base of what was interrupted.
unsafe extern "C" fn on_signal(
    signal: c_int,
    info: *mut c_void,
    context: *mut ucontext_t,
    index: u32,
    fs: usize,
) {
    let Some(handler) = actions::handler(index as usize) else { return };
    let block = here();
    // SAFETY: the kernel's, for this signal.
    let interrupted = unsafe { &mut *context };
    let is_inside = fs == block.host_fs;
    if !is_inside {
        windows::leave(interrupted, block);
    }
    let rsp = interrupted.uc_mcontext.gregs[REG_RSP as usize] as usize;
    let stack = stack_pointer();
    let is_host_stack = block.is_on_host(stack);
    let used = [(is_host_stack, stack), (is_inside && block.is_on_host(rsp), rsp)];
    let free_below = used
        .into_iter()
        .filter_map(|(is_used, at)| is_used.then_some((at - MARGIN - FRAME) & !63))
        .fold(block.next, usize::min);
    let (guest_fs, guest_rsp) = match is_inside {
        // SAFETY: in a call there is a frame.
        true => (block.guest_fs, unsafe { (*block.frame).rsp }),
        false => (fs, rsp),
    };
    let mut coming = Coming {
        signal,
        info,
        context,
        handler,
        block,
        guest_fs,
        guest_rsp,
        free_below,
        is_host_stack,
    };
    let asked = Signal {
        number: signal,
        restarts: handler.flags & libc::SA_RESTART as usize != 0,
        info,
        context: context.cast(),
        entry: actions::entry_point(index as usize),
        run,
        data: (&raw mut coming).cast(),
    };
    // SAFETY: this is the kernel's handler function.
    unsafe { (guest().door.signal)(&asked) };
}

/// Runs the guest's handler.
unsafe extern "C-unwind" fn run(coming: *mut c_void) {
    // SAFETY: what `on_signal` handed over, which waits there.
    let coming = unsafe { &*coming.cast::<Coming>() };
    // SAFETY: this thread's.
    let block = unsafe { &mut *coming.block };
    let kept = (block.next, block.guest_fs, block.frame, block.levels.count);
    if coming.free_below != block.next {
        block.levels.push(block.next, coming.guest_rsp);
        block.next = coming.free_below;
    }
    // Where the kernel put its frame on the host's stack, the handler has the guest's.
    let stack = if coming.is_host_stack { coming.guest_rsp - RED_ZONE } else { 0 };
    // SAFETY: the kernel's; its set is the first word of the C library's.
    let blocked = unsafe { *(&raw const (*coming.context).uc_sigmask).cast::<u64>() };
    let mask = blocked | coming.handler.blocks(coming.signal);
    let Coming { signal, info, context, handler, guest_fs, .. } = *coming;
    // SAFETY: the guest installed this handler, and gets what the kernel would give it.
    unsafe {
        set_fs_base(guest_fs);
        sojourn_run_guest(signal, info, context.cast(), handler.address, stack, mask);
        set_fs_base(block.host_fs);
    }
    (block.next, block.guest_fs, block.frame, block.levels.count) = kept;
}

#[inline(always)]
fn stack_pointer() -> usize {
    let here;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here
}

/// # Safety
/// Nothing that needs the other base comes before it is set back.
#[inline(always)]
unsafe fn set_fs_base(base: usize) {
    // SAFETY: the caller's promise.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// How far a stack may have shrunk since a handler jumped out (bytes); what is further up is
/// another stack.
const DEEPEST: usize = 8 << 20;

/// At a call: if a handler has jumped out of the call that it interrupted, the host's stack is free
/// again, and this call begins anew further up. It has if the guest's stack has shrunk to where
/// that call was made.
#[cold]
pub(crate) fn reclaim(block: &mut Block, frame: &Frame) {
    let rsp = frame.rsp;
    if block.is_on_alternate(rsp) || block.is_on_host(rsp) {
        return;
    }
    let is_dead = |interrupted: usize| rsp.wrapping_sub(interrupted) < DEEPEST;
    if let Some(next) = block.levels.give_up(is_dead) {
        block.next = next;
        let place = next as *mut Frame;
        // SAFETY: the place is this stack's, and free; the frame may reach into it.
        unsafe {
            core::ptr::copy(frame, place, 1);
            block.frame = place;
            enter::again(place, guest().entry);
        }
    }
}

/// The alternate stack, as the guest sees it (sigaltstack(2)), from a stack pointer of its own.
pub(crate) fn alternate(block: &mut Block, arguments: &[usize; 6], rsp: usize) -> isize {
    let [new, old, ..] = *arguments;
    if block.is_on_alternate(rsp) {
        if new != 0 {
            return -(libc::EPERM as isize);
        }
        let (ss_sp, ss_size) = (block.alternate.0 as *mut c_void, block.alternate.1);
        if old != 0 {
            let stack = libc::stack_t { ss_sp, ss_flags: libc::SS_ONSTACK, ss_size };
            // SAFETY: the guest's own, as for the kernel.
            unsafe { (old as *mut libc::stack_t).write_unaligned(stack) };
        }
        return 0;
    }
    // SAFETY: the guest's own call.
    let result = unsafe { raw::call(libc::SYS_sigaltstack, *arguments) };
    if result == 0 && new != 0 {
        // SAFETY: the kernel has just read it.
        let stack = unsafe { (new as *const libc::stack_t).read_unaligned() };
        let is_off = stack.ss_flags & libc::SS_DISABLE != 0;
        block.alternate = if is_off { (0, 0) } else { (stack.ss_sp as usize, stack.ss_size) };
    }
    result
}

/// A call from a handler on the alternate stack. The kernel sees the stack pointer on the host's
/// stack and would take the alternate one for free: there is none meanwhile.
#[cold]
pub(crate) fn without_alternate(block: &Block, call: impl FnOnce() -> isize) -> isize {
    let set = |ss_flags| {
        let (ss_sp, ss_size) = (block.alternate.0 as *mut c_void, block.alternate.1);
        let stack = libc::stack_t { ss_sp, ss_flags, ss_size };
        // SAFETY: sets what was, or nothing.
        unsafe { raw::call(libc::SYS_sigaltstack, [(&raw const stack) as usize, 0, 0, 0, 0, 0]) };
    };
    set(libc::SS_DISABLE);
    let result = call();
    set(0);
    result
}

/// rt_sigprocmask(2). What traps calls cannot be blocked.
pub(crate) fn mask(arguments: &[usize; 6]) -> isize {
    let [how, new, ..] = *arguments;
    let unblockable = actions::unblockable();
    if new == 0 || unblockable == 0 || how == libc::SIG_UNBLOCK as usize {
        // SAFETY: the guest's own call.
        return unsafe { raw::call(libc::SYS_rt_sigprocmask, *arguments) };
    }
    // SAFETY: the guest's own, as for the kernel; copied once.
    let wanted = unsafe { (new as *const u64).read_unaligned() } & !unblockable;
    let mut arguments = *arguments;
    arguments[1] = (&raw const wanted) as usize;
    // SAFETY: the same call with a set of ours.
    unsafe { raw::call(libc::SYS_rt_sigprocmask, arguments) }
}
