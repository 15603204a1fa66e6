//! Code that comes while the program runs: system calls in it, too, are rewritten (`rewriting`)
//! before the program executes them, where that is done in this process.
//!
//! Not here: the calls that bring code (`plugins`, `rings` for mmap(2), `buffers` for mprotect(2)).

use crate::guard::{is_open, within};
use crate::handlers::in_handler;
use crate::library::Library;
use crate::tls::here;
use core::sync::atomic::{AtomicBool, Ordering};

/// Calls are rewritten in this process.
static IS_REWRITTEN: AtomicBool = AtomicBool::new(false);
/// Code may have come since the last look.
static HAS_NEWS: AtomicBool = AtomicBool::new(false);

/// Returns true if code that comes now has to be looked at.
#[inline]
pub(crate) fn is_rewritten() -> bool {
    IS_REWRITTEN.load(Ordering::Relaxed)
}

/// Notes that calls are rewritten in this process.
#[cfg(target_arch = "x86_64")]
pub(crate) fn rewrites() {
    IS_REWRITTEN.store(true, Ordering::SeqCst);
}

/// Returns true, once, if there is news.
#[cfg(target_arch = "x86_64")]
pub(crate) fn take_news() -> bool {
    HAS_NEWS.swap(false, Ordering::SeqCst)
}

/// Notes that code may come before the next look.
pub(crate) fn may_come() {
    HAS_NEWS.store(true, Ordering::SeqCst);
}

/// Has code that has just come looked at before the program executes it.
#[cold]
pub(crate) fn came() {
    may_come();
    if is_open() && !in_handler(here()) {
        within(Library::code_came);
    }
}
