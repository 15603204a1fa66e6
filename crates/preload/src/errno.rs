//! `errno` of the calling thread, and results in the C manner.

use rustix::io::Errno;

#[inline]
pub(crate) fn set(error: Errno) {
    set_raw(error.raw_os_error());
}

#[inline]
pub(crate) fn set_raw(error: i32) {
    // SAFETY: the address is this thread's `errno`.
    unsafe { *libc::__errno_location() = error }
}

#[inline]
pub(crate) fn value() -> i32 {
    // SAFETY: the address is this thread's `errno`.
    unsafe { *libc::__errno_location() }
}

/// Returns the count, or sets `errno` and returns -1.
#[inline]
pub(crate) fn count(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(count) => count as isize,
        Err(error) => {
            set(error);
            -1
        }
    }
}

/// Translates a result of the kernel into C's: -4095 to -1 are negated error numbers (syscall(2)),
/// which become -1 and `errno`.
#[inline]
pub(crate) fn kernel(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        set_raw(-result as i32);
        return -1;
    }
    result
}
