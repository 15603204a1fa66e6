//! Sleeping in the kernel unless a signal handler has run, without a gap between the check and the
//! sleep.
//!
//! A handler that interrupts the few instructions between the check and the system call notices
//! that, and makes the thread continue behind them (`leave_gap`).

use crate::raw;
use crate::tls::Thread;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::ucontext_t;

global_asm!(
    ".pushsection .text.sojourn_pause, \"ax\", @progbits",
    ".globl sojourn_pause, sojourn_pause_look, sojourn_pause_call, sojourn_pause_out",
    ".hidden sojourn_pause, sojourn_pause_look, sojourn_pause_call, sojourn_pause_out",
    ".type sojourn_pause, @function",
    "sojourn_pause:",
    ".cfi_startproc",
    "mov rcx, rdi",
    "mov rax, rsi",
    "mov r11, rdx",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "sojourn_pause_look:",
    "cmp dword ptr [rcx], 0",
    "jne sojourn_pause_out",
    "sojourn_pause_call:",
    "syscall",
    "ret",
    "sojourn_pause_out:",
    "mov rax, {interrupted}",
    "ret",
    ".cfi_endproc",
    ".size sojourn_pause, . - sojourn_pause",
    ".popsection",
    interrupted = const -(libc::EINTR as i64),
);

unsafe extern "C" {
    fn sojourn_pause(ran: *const AtomicU32, number: i64, arguments: *const [usize; 6]) -> isize;
    fn sojourn_pause_look();
    fn sojourn_pause_call();
    fn sojourn_pause_out();
}

/// Makes a system call; returns `EINTR` instead if a handler has run since the wait began. Outside
/// a wait this is just the call.
///
/// # Safety
/// As for the system call itself.
pub(crate) unsafe fn call(thread: &Thread, number: i64, arguments: [usize; 6]) -> isize {
    if thread.waiting.load(Ordering::Relaxed) == 0 {
        // SAFETY: the caller answers for the call.
        return unsafe { raw::call(number, arguments) };
    }
    // SAFETY: the caller answers for the call, which a check precedes.
    unsafe { sojourn_pause(&raw const thread.ran, number, &raw const arguments) }
}

/// Ends the system call of a thread in which a handler has run and was counted, if the handler came
/// between check and call, or if the kernel is to repeat the call (`SA_RESTART` makes the thread
/// continue at the `syscall` instruction).
pub(crate) fn leave_gap(context: &mut ucontext_t) {
    let at = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let look = sojourn_pause_look as *const () as i64;
    let call = sojourn_pause_call as *const () as i64;
    if (look..=call).contains(at) {
        *at = sojourn_pause_out as *const () as i64;
    }
}
