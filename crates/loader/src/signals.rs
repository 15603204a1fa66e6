//! The guest's signal handlers.
//!
//! # Theory of operation
//! The kernel is given one of `ENTRIES` entry points in place of each handler. An entry point looks
//! where the thread is, on the host's stack, with all signals blocked.
//!
//! *In the guest's own code* the kernel's frame is where the guest expects it, and the entry point
//! jumps to the handler with the signal mask that the guest asked for. Nothing of the host remains:
//! the handler may return, jump, or go on in another context (swapcontext(3)), for ever or until
//! another context comes back to this one.
//!
//! *In a call* the signal is put off: sent again, blocked, and what waits in the call ends. When
//! the frame is complete, the signal is unblocked on the guest's stack, and comes anew (`enter`). A
//! call that has not begun, or that the kernel would restart, begins again once the handler has
//! returned (`RESTART`).
//!
//! Not here: the table of handlers (`actions`), handlers that interrupt the way in or out
//! (`windows`), the registers that handlers see (`shown`).

mod actions;
mod shown;
mod windows;

use crate::block::{AlternateStack, Block, Frame, here};
use crate::guest::{self, call};
use crate::{raw, trap};
use actions::Handler;
pub(crate) use actions::{act, has_handler};
use core::arch::global_asm;
use core::ffi::c_int;
use core::mem::offset_of;
use libc::{REG_RIP, REG_RSP, siginfo_t, ucontext_t};
use sojourn_abi::door::{PutOff, RESTART, Signal, is_fault};
use windows::{ThreadPosition, mask_at};

/// Bytes between the used part of the host's stack and what a handler's entry point uses of it: the
/// red zone (System V ABI, AMD64 supplement) and more.
const MARGIN: usize = 512;

global_asm!(
    ".pushsection .text.sojourn_handlers, \"ax\", @progbits",
    ".p2align 4",
    ".globl sojourn_handlers, sojourn_restorer, sojourn_handler_returns",
    ".hidden sojourn_handlers, sojourn_restorer, sojourn_handler_returns",
    "sojourn_handlers:",
    ".set sojourn_handler, 0",
    ".rept {count}",
    ".p2align 4",
    ".byte 0xb9",
    ".long sojourn_handler",
    "jmp 5f",
    ".set sojourn_handler, sojourn_handler + 1",
    ".endr",
    // The kernel's frame has all registers of the interrupted code.
    "5:",
    "push rbp",
    "mov rbp, rsp",
    "rdfsbase r8",
    "push r8",
    "push r8",
    "mov ebx, edi",
    "mov r12, rsi",
    "mov r13, rdx",
    "mov r9, rsp",
    // The stack: the one that the kernel has chosen if it is the host's, else the host's below what
    // is in use. An alternate stack may have room for the kernel's frame and the handler only.
    "mov rax, rsp",
    "sub rax, gs:[{lowest}]",
    "mov r10, gs:[{highest}]",
    "sub r10, gs:[{lowest}]",
    "cmp rax, r10",
    "jb 4f",
    "cmp r8, gs:[16]",
    "je 2f",
    "mov rsp, gs:[8]",
    "jmp 4f",
    "2: mov rax, [rdx + {interrupted}]",
    "sub rax, {margin}",
    "mov r11, rax",
    "sub r11, gs:[{lowest}]",
    "cmp r11, r10",
    "cmovb rsp, rax",
    "4: and rsp, -16",
    "mov rax, gs:[16]",
    "wrfsbase rax",
    "call {on_signal}",
    "mov rcx, [rbp - 8]",
    "wrfsbase rcx",
    "test rax, rax",
    "jnz 3f",
    "leave",
    "ret",
    // The handler, as the kernel would have started it. From the new signal mask on this is code
    // like the guest's: nothing is on the host's stack.
    "3: mov r14, rax",
    "leave",
    "push qword ptr gs:[{mask}]",
    "mov edi, 2",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "pop rax",
    "mov edi, ebx",
    "mov rsi, r12",
    "mov rdx, r13",
    "xor eax, eax",
    "jmp r14",
    // Handlers return here that were shown an address at which the guest cannot go on.
    ".p2align 4",
    "nop",
    "sojourn_handler_returns:",
    "mov rbx, rsp",
    "push -1",
    "mov edi, 2",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "mov rdi, rbx",
    "mov rsp, gs:[8]",
    "call {returns}",
    "mov rsp, rbx",
    "mov eax, 15",
    "syscall",
    "ud2",
    ".p2align 4",
    // Unwinders look for the function that contains the byte before a return address, which is this
    // nop.
    "nop",
    "sojourn_restorer:",
    "mov rax, 15",
    "syscall",
    "ud2",
    ".popsection",
    count = const actions::ENTRIES,
    lowest = const offset_of!(Block, stack) + offset_of!(core::ops::Range<usize>, start),
    highest = const offset_of!(Block, stack) + offset_of!(core::ops::Range<usize>, end),
    mask = const offset_of!(Block, mask),
    margin = const MARGIN,
    interrupted = const offset_of!(ucontext_t, uc_mcontext) + REG_RSP as usize * 8,
    on_signal = sym on_signal,
    returns = sym handler_returns,
);

unsafe extern "C" {
    fn sojourn_handler_returns();
}

/// What an entry point has on its stack.
#[repr(C)]
struct Entered {
    unused: usize,
    /// The FS base to go on with.
    fs: usize,
    frame: usize,
    /// The address to which the handler returns.
    returns: usize,
}

/// Receives every signal for which the guest has a handler, with all signals blocked. `index` is
/// the number of the entry point, `fs` the FS base of the interrupted code. Returns the address of
/// the handler that is to run now; 0 to go on with the interrupted code.
unsafe extern "C" fn on_signal(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut ucontext_t,
    index: u32,
    fs: usize,
    entered: *mut Entered,
) -> usize {
    let Some(handler) = actions::handler(index as usize) else { return 0 };
    let block = here();
    // SAFETY: the kernel's context of this signal, its information, and the entry point's stack.
    let (interrupted, information, entered) = unsafe { (&mut *context, &*info, &mut *entered) };
    let place = windows::place(interrupted, block, fs);
    let mut asked = Signal {
        number: signal,
        restarts: handler.flags & libc::SA_RESTART as usize != 0,
        info: info.cast(),
        context: context.cast(),
        entry: actions::entry_point(index as usize),
        is_inside: place != ThreadPosition::Guest,
        is_fault: place != ThreadPosition::Guest && is_fault(signal, information),
    };
    if place == ThreadPosition::Guest {
        windows::complete(interrupted, block);
        tell(&asked, block);
        prepare(block, interrupted, handler, signal);
        if shown::show(interrupted, signal) {
            entered.returns = sojourn_handler_returns as *const () as usize;
        }
        return handler.address;
    }
    // A signal that arrived before the call is complete; see `due`.
    let blocked = mask_of(interrupted);
    block.pending = 1;
    if asked.is_fault {
        asked.restarts = true;
        windows::give_up(interrupted, block, signal);
    }
    let put_off = tell(&asked, block);
    block.blocked |= blocked & put_off.signals;
    block.blocked_once |= put_off.blocked;
    if place == ThreadPosition::Leaving || asked.is_fault {
        entered.fs = block.host_fs;
    }
    0
}

/// Tells the library of a signal. In a child that is alone nothing of the library runs.
fn tell(signal: &Signal, block: &mut Block) -> PutOff {
    if !block.is_alone {
        // SAFETY: this is the kernel's handler function.
        return unsafe { (guest::door().signal)(signal) };
    }
    if !signal.is_inside {
        return PutOff::default();
    }
    let bit = 1u64 << (signal.number - 1);
    block.put_off |= bit;
    // SAFETY: the kernel's context.
    unsafe { *mask_at(signal.context.cast()) |= bit };
    let (process, thread) = (raw::process_number(), raw::thread_number());
    let arguments =
        [process as usize, thread as usize, signal.number as usize, signal.info as usize, 0, 0];
    // SAFETY: sends a signal to this thread, with the kernel's own information.
    unsafe { raw::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
    PutOff { signals: bit, blocked: 0 }
}

fn mask_of(context: &mut ucontext_t) -> u64 {
    // SAFETY: the kernel's context.
    unsafe { *mask_at(context) }
}

/// Sets the mask for the handler, and the one for afterwards.
fn prepare(block: &mut Block, context: &mut ucontext_t, handler: Handler, signal: c_int) {
    // During the handler what a call's own mask has let through is let through still.
    let now = mask_of(context);
    let [blocked, blocked_once] =
        [&mut block.blocked, &mut block.blocked_once].map(core::mem::take);
    // SAFETY: the kernel's context.
    unsafe { *mask_at(context) = now | blocked };
    block.mask = now | blocked_once | handler.blocks(signal);
}

/// Notes that the guest's call is complete and the handlers run that were put off.
#[unsafe(no_mangle)]
unsafe extern "C" fn sojourn_due(frame: &mut Frame) {
    let block = here();
    block.pending = 0;
    if block.is_disabled {
        block.due |= back_to_alternate(block);
    }
    if frame.rax as isize == -(RESTART as isize) {
        frame.rax = block.number;
        frame.back = trap::again(frame.back);
    }
    block.due |= match block.is_alone {
        true => core::mem::take(&mut block.put_off),
        false => (guest::door().due)(),
    };
}

/// Completes the context of a handler that has returned: runs with the guest's FS base, so it must
/// not use thread-local storage.
unsafe extern "C" fn handler_returns(context: *mut ucontext_t) {
    // SAFETY: the stack pointer at the return is the context's address.
    let rip = unsafe { &mut (*context).uc_mcontext.gregs[REG_RIP as usize] };
    if let Some(at) = guest::guest().moved(*rip as usize) {
        *rip = at as i64;
    }
}

/// Serves sigaltstack(2) with the guest's stack pointer `rsp`, because the kernel sees the host's.
pub(crate) fn alternate(block: &mut Block, arguments: &[usize; 6], rsp: usize) -> isize {
    let [new, old, ..] = *arguments;
    if block.is_on_alternate(rsp) {
        if new != 0 {
            return -(libc::EPERM as isize);
        }
        if old != 0 {
            // SAFETY: the guest's own call, with which the kernel says if it can write there.
            let result = unsafe { raw::call(libc::SYS_sigaltstack, [0, old, 0, 0, 0, 0]) };
            if result != 0 {
                return result;
            }
            let stack = block.alternate.with_flags(libc::SS_ONSTACK);
            // SAFETY: the guest's memory, which the kernel has just written.
            unsafe { (old as *mut libc::stack_t).write_unaligned(stack) };
        }
        return 0;
    }
    // SAFETY: the guest's own call.
    let result = unsafe { raw::call(libc::SYS_sigaltstack, *arguments) };
    if result == 0 && new != 0 {
        // SAFETY: the kernel has just read the structure.
        let stack = unsafe { (new as *const libc::stack_t).read_unaligned() };
        let is_off = stack.ss_flags & libc::SS_DISABLE != 0;
        block.alternate = match is_off {
            true => AlternateStack::default(),
            false => AlternateStack::of(&stack),
        };
    }
    result
}

/// Begins a call of a handler's on the alternate stack, with all signals blocked (`enter`). The
/// kernel sees the stack pointer on the host's stack, and would take the alternate stack for free
/// and use it again. So the alternate stack is disabled until [`sojourn_due`].
#[cold]
pub(crate) fn leave_alternate(block: &mut Block) {
    block.is_blocked = 0;
    block.is_disabled = true;
    set_alternate(block, libc::SS_DISABLE);
    raw::set_mask(block.mask_before);
}

/// Enables the alternate stack again. Returns the signals that are blocked from now on until the
/// guest's stack pointer is back.
#[cold]
fn back_to_alternate(block: &mut Block) -> u64 {
    let before = raw::block_signals();
    block.is_disabled = false;
    set_alternate(block, 0);
    !before
}

fn set_alternate(block: &Block, flags: c_int) {
    let stack = block.alternate.with_flags(flags);
    // SAFETY: sets the guest's alternate stack again, or none.
    unsafe { raw::call(libc::SYS_sigaltstack, [(&raw const stack) as usize, 0, 0, 0, 0, 0]) };
}

/// Serves rt_sigprocmask(2). The signal that traps calls cannot be blocked.
pub(crate) fn mask(arguments: &[usize; 6]) -> isize {
    let [how, new, ..] = *arguments;
    let unblockable = actions::unblockable();
    if new == 0 || unblockable == 0 || how == libc::SIG_UNBLOCK as usize {
        // SAFETY: the guest's own call.
        return unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
    }
    // SAFETY: the guest's memory, as for the kernel; copied once.
    let wanted = unsafe { (new as *const u64).read_unaligned() } & !unblockable;
    let mut arguments = *arguments;
    arguments[1] = (&raw const wanted) as usize;
    // SAFETY: the guest's own call with a local set.
    unsafe { call(libc::SYS_rt_sigprocmask, &arguments) }
}
