//! Knows if this process is the loader's, with a guest in it: a program that makes its own system
//! calls (`door`).

use core::sync::atomic::{AtomicBool, Ordering};

/// The loader has the table of functions.
#[unsafe(link_section = ".data.start")]
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Returns true if this process is the loader's.
#[inline(always)]
pub(crate) fn is_taken() -> bool {
    IS_TAKEN.load(Ordering::Relaxed)
}

/// Notes that this process is the loader's.
pub(crate) fn take() {
    IS_TAKEN.store(true, Ordering::Relaxed);
}
