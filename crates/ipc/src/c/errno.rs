//! errno, and panics that become it: no panic leaves this library.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; a panic becomes `otherwise`.
#[inline]
pub(super) fn guard_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            // Dropping what was thrown could panic once more.
            core::mem::forget(panic);
            set_errno(libc::ENOTRECOVERABLE);
            otherwise
        }
    }
}

#[cold]
pub(super) fn set_errno(number: c_int) {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() = number };
}
