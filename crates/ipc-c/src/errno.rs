//! Access to `errno`, and the conversion of panics to errors: no panic leaves this library.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; returns `otherwise` if it panics.
#[inline]
pub(crate) fn guard_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            // The panic's payload is leaked, because dropping it could panic again.
            core::mem::forget(panic);
            set_errno(libc::ENOTRECOVERABLE);
            otherwise
        }
    }
}

#[cold]
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() = number };
}
