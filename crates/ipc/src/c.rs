//! The C interface: `include/sojourn/ipc.h` over the Rust one.
//!
//! # Theory of operation
//! C cannot be held to lifetimes, so a handle remembers what Rust would have the borrow checker
//! know: which message it has under construction (a number that the `sj_out` carries), and which it
//! received last (a number that the `sj_in` carries). A stale one is refused. Tokens are numbers
//! too, looked up and claimed atomically when they are used (`token`), so that copies of one do no
//! harm. Of the big structures only the fields that are valid are ever written, and nothing is
//! copied twice.
//!
//! What cannot be checked: that pointers given to us point at what the header says, and that a
//! freed handle is not used. No panic leaves: see [`guard`]. Here is only what all parts share; the
//! functions are in `client`, `server`, `endpoint`, `received` and `memory`, documented in the
//! header.

mod answer;
mod client;
mod endpoint;
mod memory;
#[cfg(test)]
mod mixed_tests;
mod options;
mod parts;
mod received;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod token;
mod types;

use crate::deadline::Deadline;
use crate::message::bytes_of_mut;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use status::Status;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; a panic, which would be an error of ours, becomes `SJ_SYSTEM` with
/// `ENOTRECOVERABLE`.
#[inline]
fn guard(body: impl FnOnce() -> Status) -> Status {
    guard_or(Status::System, body)
}

/// Runs `body`; a panic becomes `otherwise`.
#[inline]
fn guard_or<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
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
fn set_errno(number: c_int) {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() = number };
}

/// The header's deadlines: nanoseconds of `CLOCK_MONOTONIC`, `SJ_FOREVER` the largest.
#[inline]
fn deadline(ns: i64) -> Deadline {
    match ns {
        i64::MAX => Deadline::NEVER,
        ns => Deadline::at_ns(ns.max(0).cast_unsigned()),
    }
}

/// The object behind a handle.
///
/// # Safety
/// Null, or a handle that we gave out, that has not been freed, and that no other thread uses now.
#[inline]
unsafe fn handle<'h, T>(handle: *mut T) -> Result<&'h mut T, Status> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_mut() }.ok_or(Status::Invalid)
}

/// The object behind a handle that several threads may use at a time.
///
/// # Safety
/// Null, or a handle that we gave out and that has not been freed.
#[inline]
unsafe fn shared<'h, T: Sync>(handle: *const T) -> Result<&'h T, Status> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_ref() }.ok_or(Status::Invalid)
}

/// Gives a new handle out.
///
/// # Safety
/// `out` can be written.
unsafe fn give<T>(out: *mut *mut T, object: T) -> Status {
    // SAFETY: the caller's contract.
    unsafe { out.write(Box::into_raw(Box::new(object))) };
    Status::Ok
}

/// Takes a handle back.
///
/// # Safety
/// Null, or a handle given out by [`give`] and not freed yet.
unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: made by `Box::into_raw`, by the caller's contract.
        let object = unsafe { Box::from_raw(handle) };
        guard_or((), || drop(object));
    }
}

/// The status of either outcome.
#[inline]
fn status(result: Result<(), Status>) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(status) => status,
    }
}

/// Where a new handle's numbers of messages begin: no two handles have the same, so a message begun
/// on one is refused by every other.
fn first_number() -> u64 {
    static HANDLES: AtomicU64 = AtomicU64::new(1);
    HANDLES.fetch_add(1, Ordering::Relaxed) << 40
}

/// Memory where a body can be written that cannot be sent: C writes before it is told.
#[derive(Debug, Default)]
struct Scratch(Vec<u64>);

impl Scratch {
    /// `len` zeroed bytes aligned to 8, until the next call; null if there is no memory.
    #[cold]
    fn room(&mut self, len: usize) -> *mut u8 {
        self.0 = Vec::new();
        match zeroed(len) {
            Some(words) => {
                self.0 = words;
                bytes_of_mut(&mut self.0).as_mut_ptr()
            }
            None => core::ptr::null_mut(),
        }
    }
}

/// `len` bytes of zeroes, as words; `None` if there is no memory. Pages are touched by nobody.
fn zeroed(len: usize) -> Option<Vec<u64>> {
    let words = len.div_ceil(8).max(1);
    let layout = core::alloc::Layout::array::<u64>(words).ok()?;
    // SAFETY: the layout's size is not zero.
    let start = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<u64>();
    if start.is_null() {
        return None;
    }
    // SAFETY: allocated just now with the layout of that many words, all of them zero.
    Some(unsafe { Vec::from_raw_parts(start, words, words) })
}

#[unsafe(no_mangle)]
extern "C" fn sj_now_ns() -> i64 {
    crate::deadline::now_ns().cast_signed()
}

#[unsafe(no_mangle)]
extern "C" fn sj_reference_threshold() -> usize {
    crate::rt::reference_threshold()
}
