//! Handles: objects that C has pointers to; and what else every function begins or ends with.
//!
//! Not here: what a handle's object is (`client`, `server_handle`, `endpoint`, `memory`).

use super::errno::guard_or;
use super::status::Status;
use crate::deadline::Deadline;
use core::sync::atomic::{AtomicU64, Ordering};

/// Runs `body`; a panic, which would be an error of ours, becomes `SJ_SYSTEM` with
/// `ENOTRECOVERABLE`.
#[inline]
pub(super) fn guard(body: impl FnOnce() -> Status) -> Status {
    guard_or(Status::System, body)
}

/// The header's deadlines: nanoseconds of `CLOCK_MONOTONIC`, `SJ_FOREVER` the largest.
#[inline]
pub(super) fn deadline(ns: i64) -> Deadline {
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
pub(super) unsafe fn handle<'h, T>(handle: *mut T) -> Result<&'h mut T, Status> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_mut() }.ok_or(Status::Invalid)
}

/// The object behind a handle that several threads may use at a time.
///
/// # Safety
/// Null, or a handle that we gave out and that has not been freed.
#[inline]
pub(super) unsafe fn shared<'h, T: Sync>(handle: *const T) -> Result<&'h T, Status> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_ref() }.ok_or(Status::Invalid)
}

/// Gives a new handle out.
///
/// # Safety
/// `out` can be written.
pub(super) unsafe fn give<T>(out: *mut *mut T, object: T) -> Status {
    // SAFETY: the caller's contract.
    unsafe { out.write(Box::into_raw(Box::new(object))) };
    Status::Ok
}

/// Takes a handle back.
///
/// # Safety
/// Null, or a handle given out by [`give`] and not freed yet.
pub(super) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: made by `Box::into_raw`, by the caller's contract.
        let object = unsafe { Box::from_raw(handle) };
        guard_or((), || drop(object));
    }
}

/// The status of either outcome.
#[inline]
pub(super) fn status(result: Result<(), Status>) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(status) => status,
    }
}

/// Where a new handle's numbers of messages begin: no two handles have the same, so a message begun
/// on one is refused by every other.
pub(super) fn first_number() -> u64 {
    static HANDLES: AtomicU64 = AtomicU64::new(1);
    HANDLES.fetch_add(1, Ordering::Relaxed) << 40
}
