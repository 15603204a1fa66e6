//! Handles, the objects to which C has pointers, and the code with which every function begins or
//! ends.
//!
//! Not here: the objects of handles (`client`, `server_handle`, `endpoint`, `memory`).

use crate::errno::guard_or;
use crate::status::Status;
use core::sync::atomic::{AtomicU64, Ordering};
use sojourn_ipc::Deadline;

/// Runs `body`; a panic, which would be a defect of this library, becomes `SJ_SYSTEM` with
/// `ENOTRECOVERABLE`.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Status) -> Status {
    guard_or(Status::System, body)
}

/// Converts the header's deadlines: nanoseconds of `CLOCK_MONOTONIC`, `SJ_FOREVER` the largest.
#[inline]
pub(crate) fn deadline(ns: i64) -> Deadline {
    match ns {
        i64::MAX => Deadline::NEVER,
        ns => Deadline::at_ns(ns.max(0).cast_unsigned()),
    }
}

/// Returns the object behind a handle.
///
/// # Safety
/// Null, or a handle given out by [`give`] that has not been freed, and that no other thread uses
/// now.
#[inline]
pub(crate) unsafe fn handle<'h, T>(handle: *mut T) -> Result<&'h mut T, Status> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_mut() }.ok_or(Status::Invalid)
}

/// Returns the object behind a handle that several threads may use at a time.
///
/// # Safety
/// Null, or a handle given out by [`give`] that has not been freed.
#[inline]
pub(crate) unsafe fn shared<'h, T: Sync>(handle: *const T) -> Result<&'h T, Status> {
    // SAFETY: the caller's contract.
    unsafe { handle.as_ref() }.ok_or(Status::Invalid)
}

/// Writes a new handle to `out`.
///
/// # Safety
/// `out` can be written.
pub(crate) unsafe fn give<T>(out: *mut *mut T, object: T) -> Status {
    // SAFETY: the caller's contract.
    unsafe { out.write(Box::into_raw(Box::new(object))) };
    Status::Ok
}

/// Frees a handle.
///
/// # Safety
/// Null, or a handle given out by [`give`] and not freed yet.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: made by `Box::into_raw`, by the caller's contract.
        let object = unsafe { Box::from_raw(handle) };
        guard_or((), || drop(object));
    }
}

/// Returns the status of a result.
#[inline]
pub(crate) fn status(result: Result<(), Status>) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(status) => status,
    }
}

/// The number of a message that a handle received or begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageNumber(pub(crate) u64);

impl MessageNumber {
    /// Returns the first number of a new handle. No two handles have the same numbers, so a message
    /// begun on one handle is refused by every other.
    pub(crate) fn first() -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(1);
        Self(HANDLES.fetch_add(1, Ordering::Relaxed) << 40)
    }

    /// Returns the number of the next message.
    #[inline]
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
