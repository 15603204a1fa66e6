//! Knows if a thread is running a signal handler of the program's.
//!
//! Not here: the decision which handler runs when (`signals`).

use crate::tls::Thread;
use core::arch::asm;
use core::sync::atomic::Ordering;

/// The most stack that a handler and its calls use, in bytes. A stack pointer further down is on
/// another stack.
const DEEPEST: usize = 8 << 20;

/// Runs a handler, and counts it. A handler that leaves with longjmp(3) stays counted; `in_handler`
/// notices that.
#[inline(always)]
pub(crate) fn run(thread: &Thread, handler: impl FnOnce()) {
    let here = stack_pointer();
    let runs = is_below_first(thread, here);
    let before = if runs { thread.handlers.load(Ordering::Relaxed) } else { 0 };
    if before == 0 {
        thread.first_handler.store(here, Ordering::Relaxed);
    }
    thread.handlers.store(before + 1, Ordering::Relaxed);
    handler();
    thread.handlers.store(before, Ordering::Relaxed);
}

/// Returns true if this thread may be in a handler of the program's.
///
/// The thread is in none if no handler is counted. A handler is also over if the stack has shrunk
/// above the place where the handler began, or if the thread is on another stack, to which the
/// handler has jumped.
pub(crate) fn in_handler(thread: &Thread) -> bool {
    if thread.handlers.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let here = match thread.own_stack.load(Ordering::Relaxed) {
        0 => stack_pointer(),
        called_from => called_from,
    };
    let is_in = is_below_first(thread, here);
    if !is_in {
        thread.handlers.store(0, Ordering::Relaxed);
    }
    is_in
}

fn is_below_first(thread: &Thread, here: usize) -> bool {
    let first = thread.first_handler.load(Ordering::Relaxed);
    (1..DEEPEST).contains(&first.wrapping_sub(here))
}

#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags))
    };
    // SAFETY: reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags))
    };
    here
}
