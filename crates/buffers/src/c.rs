//! The C interface: `include/sojourn/buffers.h` over the core of the Rust one.
//!
//! Not here: anything but conversions. Pointers cannot be checked: they have to point to the
//! objects that the header names. No panic unwinds into C.

use crate::error::Error;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use core::ffi::{c_int, c_void};
use core::time::Duration;
use libc::ssize_t;
use sojourn_lending::RawPiece;
use sojourn_shm::Deadline;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A `sj_receiver`.
#[derive(Debug)]
struct ReceiverObject {
    fd: c_int,
    incoming: Incoming,
}

/// A `sj_sender`.
#[derive(Debug)]
struct SenderObject {
    fd: c_int,
    outgoing: Outgoing,
}

/// Runs `body`. Turns an error, and a panic, into `errno` and the result `failed`.
fn guard<T>(failed: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    let number = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error.number(),
        Err(panic) => {
            // The payload of the panic is leaked, because its drop could panic once more.
            core::mem::forget(panic);
            libc::ENOTRECOVERABLE
        }
    };
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = number };
    failed
}

/// Returns the object that a caller has named.
///
/// # Safety
/// `place` is null or of an open object, which nobody else uses meanwhile.
unsafe fn object<'a, T>(place: *mut T) -> Result<&'a mut T, Error> {
    // SAFETY: the contract of this function.
    unsafe { place.as_mut() }.ok_or(Error::System(libc::EINVAL))
}

/// Ends an object; nothing is done for null.
///
/// # Safety
/// `place` is null or was made by `Box::into_raw`, and nobody uses it any more.
unsafe fn close<T>(place: *mut T) {
    if !place.is_null() {
        // SAFETY: the contract of this function.
        let object = unsafe { Box::from_raw(place) };
        guard((), || {
            drop(object);
            Ok(())
        });
    }
}

fn deadline(timeout_ns: i64) -> Deadline {
    match u64::try_from(timeout_ns) {
        Err(_) | Ok(0) => Deadline::NOW,
        Ok(_) if timeout_ns == i64::MAX => Deadline::NEVER,
        Ok(ns) => Deadline::after(Duration::from_nanos(ns)),
    }
}

fn length(len: usize) -> ssize_t {
    ssize_t::try_from(len).unwrap_or(ssize_t::MAX)
}

#[unsafe(no_mangle)]
extern "C" fn sj_receiver_open(fd: c_int) -> *mut ReceiverObject {
    guard(core::ptr::null_mut(), || {
        let incoming = Incoming::new(fd)?;
        Ok(Box::into_raw(Box::new(ReceiverObject { fd, incoming })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_receiver_loan(
    receiver: *mut ReceiverObject,
    at_least: usize,
    max: usize,
    timeout_ns: i64,
    pieces: *mut RawPiece,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: an open receiver, by the header.
        let receiver = unsafe { object(receiver) }?;
        let until = deadline(timeout_ns);
        let len = receiver.incoming.lend(receiver.fd, at_least, max, until)?;
        // SAFETY: an array of two, by the header.
        unsafe { pieces.cast::<[RawPiece; 2]>().write(receiver.incoming.pieces()) };
        Ok(length(len))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_receiver_loan_copied(
    receiver: *mut ReceiverObject,
    at_least: usize,
    max: usize,
    timeout_ns: i64,
    bytes: *mut *const c_void,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: an open receiver, by the header.
        let receiver = unsafe { object(receiver) }?;
        let until = deadline(timeout_ns);
        let len = receiver.incoming.lend(receiver.fd, at_least, max, until)?;
        receiver.incoming.copy();
        // SAFETY: the place of a pointer, by the header.
        unsafe { bytes.write(receiver.incoming.copied().as_ptr().cast()) };
        Ok(length(len))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_receiver_give_back(receiver: *mut ReceiverObject, len: usize) {
    guard((), || {
        // SAFETY: an open receiver, by the header.
        let receiver = unsafe { object(receiver) }?;
        receiver.incoming.give_back(len);
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_receiver_close(receiver: *mut ReceiverObject) {
    // SAFETY: made by `sj_receiver_open` and not closed before, by the header.
    unsafe { close(receiver) };
}

#[unsafe(no_mangle)]
extern "C" fn sj_sender_open(fd: c_int) -> *mut SenderObject {
    guard(core::ptr::null_mut(), || {
        let outgoing = Outgoing::new(fd)?;
        Ok(Box::into_raw(Box::new(SenderObject { fd, outgoing })))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_sender_reserve(
    sender: *mut SenderObject,
    at_least: usize,
    max: usize,
    timeout_ns: i64,
    pieces: *mut RawPiece,
) -> ssize_t {
    guard(-1, || {
        // SAFETY: an open sender, by the header.
        let sender = unsafe { object(sender) }?;
        let len = sender.outgoing.reserve(sender.fd, at_least, max, deadline(timeout_ns))?;
        // SAFETY: an array of two, by the header.
        unsafe { pieces.cast::<[RawPiece; 2]>().write(sender.outgoing.pieces()) };
        Ok(length(len))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_sender_commit(
    sender: *mut SenderObject,
    len: usize,
    timeout_ns: i64,
) -> c_int {
    guard(-1, || {
        // SAFETY: an open sender, by the header.
        let sender = unsafe { object(sender) }?;
        sender.outgoing.commit(sender.fd, len, deadline(timeout_ns)).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_sender_flush(sender: *mut SenderObject, timeout_ns: i64) -> c_int {
    guard(-1, || {
        // SAFETY: an open sender, by the header.
        let sender = unsafe { object(sender) }?;
        sender.outgoing.flush(sender.fd, deadline(timeout_ns)).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_sender_pending(sender: *const SenderObject) -> usize {
    // SAFETY: an open sender, by the header.
    unsafe { sender.as_ref() }.map_or(0, |sender| sender.outgoing.pending())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_sender_close(sender: *mut SenderObject) {
    // SAFETY: made by `sj_sender_open` and not closed before, by the header.
    unsafe { close(sender) };
}
