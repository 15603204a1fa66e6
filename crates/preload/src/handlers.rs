//! Whether a thread runs a handler of the program's.
//!
//! Not here: which handler runs when (`signals`).

use crate::tls::Thread;
use core::arch::asm;
use core::sync::atomic::Ordering;

/// How deep a handler's calls may go (bytes). What is further down is another stack.
const DEEPEST: usize = 8 << 20;

/// Runs a handler. One that jumps out of here leaves behind that it runs, which `in_handler` finds
/// out.
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

/// Whether this thread may be in a handler of the program's. It is not if none has begun that has
/// not ended, nor if the stack has shrunk to before it began, or is another, which then was jumped
/// to.
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
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here
}
