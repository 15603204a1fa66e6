//! The C functions of clients: connections, requests, answers.

use crate::errno::guard_or;
use crate::handle::{MessageNumber, deadline, free, give, guard, handle, status};
use crate::message::{self, Received, begun};
use crate::options::{address, connect_options};
use crate::parts;
use crate::scratch::Scratch;
use crate::status::Status;
use crate::types::{Client, In, LocalObject, Options, Out, PendingCall, WaitOut};
use core::ffi::{c_char, c_int, c_void};
use rustix::fd::AsRawFd;
use sojourn_ipc::raw::{self, CallNumbers, RequestBody, RequestPlace, Seq};
use sojourn_ipc::{CallError, Connection, Deadline, Draft, INLINE_MAX, Pending};

/// `sj_connection`.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    pub(crate) inner: Connection,
    pub(crate) received: Received,
    drafting: Drafting,
    scratch: Scratch,
}

/// The request under construction.
#[derive(Debug)]
struct Drafting {
    /// The request's number, which its `sj_out` carries.
    number: MessageNumber,
    body_len: usize,
    state: State,
    /// The number of the slots' requests when the request was begun. If it has changed, the area of
    /// the next slot is another one.
    seq: Seq,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    /// The body is in the connection's words.
    Short,
    Long(RequestPlace),
    TooLarge,
}

/// Returns the word that names this handle.
#[inline]
fn word_of(handle: &mut ConnectionHandle) -> u64 {
    core::ptr::from_mut(handle).expose_provenance() as u64
}

impl ConnectionHandle {
    fn new(inner: Connection) -> Self {
        let drafting = Drafting {
            number: MessageNumber::first(),
            body_len: 0,
            state: State::Closed,
            seq: Seq(0),
        };
        Self { inner, received: Received::default(), drafting, scratch: Scratch::default() }
    }

    #[inline]
    fn begin(&mut self, body_len: usize) -> *mut u8 {
        self.drafting.number = self.drafting.number.next();
        self.drafting.body_len = body_len;
        if body_len <= INLINE_MAX {
            self.drafting.state = State::Short;
            return raw::words(&mut self.inner);
        }
        self.begin_long(body_len)
    }

    /// Sends the request under construction, if that is `out`, is short, has only a body, and the
    /// call line is free.
    ///
    /// # Safety
    /// Null, or begun by us.
    #[inline]
    unsafe fn post_short(&mut self, out: *const Out) -> Option<Pending> {
        if out.is_null() {
            return None;
        }
        // SAFETY: not null, so begun by us, who wrote these.
        let (number, has_parts) = unsafe { ((*out).private[0], parts::has_any(out)) };
        if MessageNumber(number) != self.drafting.number || has_parts {
            return None;
        }
        // SAFETY: `out` was begun by us, who wrote these.
        let (op, body_len) = unsafe { ((*out).op, (*out).body_len) };
        if !matches!(self.drafting.state, State::Short) || body_len > self.drafting.body_len {
            return None;
        }
        let pending = raw::post_short(&mut self.inner, op, body_len)?;
        self.drafting.state = State::Closed;
        Some(pending)
    }

    #[inline(never)]
    fn begin_long(&mut self, body_len: usize) -> *mut u8 {
        self.drafting.seq = raw::slot_seq(&self.inner);
        if body_len as u64 > raw::request_max(&self.inner) {
            self.drafting.state = State::TooLarge;
            return self.scratch.room(body_len);
        }
        let RequestBody { place, start } = raw::place_request(&mut self.inner, body_len);
        self.drafting.state = State::Long(place);
        start
    }

    /// Completes the request under construction, if that is `out`, and returns its draft.
    ///
    /// # Safety
    /// Null, or begun by us; what it refers to stays as it is for `'c`.
    #[inline(never)]
    unsafe fn take_draft<'c>(&'c mut self, out: *const Out) -> Result<Draft<'c, 'c>, Status> {
        if out.is_null() {
            return Err(Status::Invalid);
        }
        // SAFETY: not null, so begun by us, who wrote these.
        let (number, body_len, op) = unsafe { ((*out).private[0], (*out).body_len, (*out).op) };
        if MessageNumber(number) != self.drafting.number || body_len > self.drafting.body_len {
            return Err(Status::Invalid);
        }
        let place = match core::mem::replace(&mut self.drafting.state, State::Closed) {
            State::Short => RequestPlace::WORDS,
            State::Long(place) => place,
            State::TooLarge => return Err(Status::TooLarge),
            State::Closed => return Err(Status::Invalid),
        };
        if place.is_next_slot() && self.drafting.seq != raw::slot_seq(&self.inner) {
            return Err(Status::Invalid);
        }
        // SAFETY: the caller's contract.
        let has_parts = unsafe { parts::has_any(out) };
        if has_parts {
            // SAFETY: `out` may be read, by the caller's contract.
            unsafe { parts::check(out)? };
        }
        let mut draft = raw::resume_request(&mut self.inner, op, body_len, place);
        if has_parts {
            // SAFETY: `out` may be read, by the caller's contract, and its parts were checked.
            unsafe { parts::attach(out, draft.encoder())? };
        }
        Ok(draft)
    }

    /// Writes the outcome of a call for C.
    ///
    /// # Safety
    /// `message` can be written.
    #[inline]
    unsafe fn show(&mut self, outcome: Result<(), CallError>, message: *mut In) -> Status {
        match outcome {
            Ok(()) => {
                let number = self.received.next();
                let this = word_of(self);
                // SAFETY: the caller's contract.
                unsafe { message::fill(message, raw::reply_of(&mut self.inner), this, number) };
                Status::Ok
            }
            // SAFETY: the caller's contract.
            Err(error) => unsafe { refuse(message, &error) },
        }
    }
}

/// Writes an empty message and returns the status of an error.
///
/// # Safety
/// `message` can be written.
#[cold]
unsafe fn refuse(message: *mut In, error: &CallError) -> Status {
    let fault = if let CallError::Fault(fault) = error { fault.0 } else { 0 };
    // SAFETY: the caller's contract.
    unsafe { message::clear(message, fault) };
    Status::of_call(error)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_connect(
    name: *const c_char,
    options: *const Options,
    out: *mut *mut ConnectionHandle,
) -> Status {
    guard(|| {
        if out.is_null() {
            return Status::Invalid;
        }
        // SAFETY: null or a string and null or readable, as the header asks.
        let both = unsafe { address(name).and_then(|name| Ok((name, connect_options(options)?))) };
        let (address, options) = match both {
            Ok(both) => both,
            Err(status) => return status,
        };
        match Connection::connect(address, &options) {
            // SAFETY: not null, so it can be written as the header asks.
            Ok(connection) => unsafe { give(out, ConnectionHandle::new(connection)) },
            Err(error) => Status::of_connect(&error),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_disconnect(connection: *mut ConnectionHandle) {
    // SAFETY: null or a handle, as the header asks.
    unsafe { free(connection) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_reason(connection: *mut ConnectionHandle) -> c_int {
    // SAFETY: null or a handle, as the header asks.
    let ended = unsafe { handle(connection) }.ok().and_then(|handle| handle.inner.ended());
    ended.map_or(0, |reason| reason.code().cast_signed())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_self(connection: *mut ConnectionHandle) -> Client {
    // SAFETY: null or a handle, as the header asks.
    let id = unsafe { handle(connection) }.map(|handle| handle.inner.id());
    id.unwrap_or_default().into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_socket(connection: *mut ConnectionHandle) -> c_int {
    // SAFETY: null or a handle, as the header asks.
    unsafe { handle(connection) }.map_or(-1, |handle| handle.inner.socket().as_raw_fd())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_is_local(connection: *mut ConnectionHandle) -> c_int {
    // SAFETY: null or a handle, as the header asks.
    unsafe { handle(connection) }.map_or(0, |handle| c_int::from(handle.inner.is_local()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_local(connection: *mut ConnectionHandle) -> *mut c_void {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: null or a handle, as the header asks.
        let object = unsafe { handle(connection) }.ok().and_then(|handle| handle.inner.local());
        let object = object.and_then(|object| object.downcast::<LocalObject>().ok());
        object.map_or(core::ptr::null_mut(), |object| object.0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_set_wait(
    connection: *mut ConnectionHandle,
    wanted: *const WaitOut,
    before: *mut WaitOut,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let Ok(handle) = (unsafe { handle(connection) }) else { return Status::Invalid };
        let connection = &mut handle.inner;
        // SAFETY: null or readable, as the header asks; every bit pattern is a value.
        let was = match unsafe { wanted.as_ref() }.map(|wanted| wanted.wait()) {
            Some(Some(wait)) => connection.set_wait(wait),
            Some(None) => return Status::Invalid,
            None => raw::wait_of(connection),
        };
        if !before.is_null() {
            // SAFETY: not null, so it can be written as the header asks; `wanted`, which may be the
            // same memory, is not looked at any more.
            unsafe { before.write(was.into()) };
        }
        Status::Ok
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_start(
    connection: *mut ConnectionHandle,
    op: u16,
    body_len: usize,
    out: *mut Out,
) {
    // SAFETY: null or a handle, as the header asks.
    let (Ok(handle), false) = (unsafe { handle(connection) }, out.is_null()) else { return };
    let body = guard_or(core::ptr::null_mut(), || handle.begin(body_len));
    let body = core::ptr::slice_from_raw_parts_mut(body, body_len);
    // SAFETY: not null, so it can be written as the header asks.
    unsafe { begun(out, body, op, false, handle.drafting.number) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_call(
    connection: *mut ConnectionHandle,
    out: *mut Out,
    deadline_ns: i64,
    message: *mut In,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let (Ok(handle), false) = (unsafe { handle(connection) }, message.is_null()) else {
            return Status::Invalid;
        };
        let deadline = deadline(deadline_ns);
        // SAFETY: null or begun by us, as the header asks.
        let outcome = match unsafe { handle.post_short(out) } {
            Some(pending) => handle.inner.finish(pending, deadline).map(drop),
            // SAFETY: `out` is null or begun by us, and the message can be written.
            None => return unsafe { call_rare(handle, out, deadline, message) },
        };
        // SAFETY: not null, so it can be written as the header asks.
        unsafe { handle.show(outcome, message) }
    })
}

/// Implements `sj_call` for any request.
///
/// # Safety
/// `out` is null or begun by us; `message` can be written.
#[inline(never)]
unsafe fn call_rare(
    handle: &mut ConnectionHandle,
    out: *mut Out,
    deadline: Deadline,
    message: *mut In,
) -> Status {
    // SAFETY: the caller's contract; we return only after the call.
    let outcome = match unsafe { handle.take_draft(out) } {
        Ok(draft) => draft.call(deadline).map(drop),
        Err(status) => {
            // SAFETY: the caller's contract.
            unsafe { message::clear(message, 0) };
            return status;
        }
    };
    // SAFETY: the caller's contract.
    unsafe { handle.show(outcome, message) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_submit(
    connection: *mut ConnectionHandle,
    out: *mut Out,
    deadline_ns: i64,
    pending: *mut PendingCall,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let (Ok(handle), false) = (unsafe { handle(connection) }, pending.is_null()) else {
            return Status::Invalid;
        };
        // SAFETY: null or begun by us, as the header asks; what is sent has been copied on return.
        let submitted = unsafe { handle.take_draft(out) }.and_then(|draft| {
            draft.submit(deadline(deadline_ns)).map_err(|error| Status::of_call(&error))
        });
        status(submitted.map(|call| {
            let CallNumbers { line, seq } = raw::numbers_of(&call);
            let opaque = u64::from(line) | u64::from(seq.0) << 32;
            // SAFETY: not null, so it can be written as the header asks.
            unsafe { pending.write(PendingCall { opaque }) };
        }))
    })
}

impl ConnectionHandle {
    /// Returns the outstanding call that C names.
    fn pending(&self, pending: PendingCall) -> Result<Pending, Status> {
        let line = u8::try_from(pending.opaque as u32).map_err(|_| Status::Invalid)?;
        let seq = Seq((pending.opaque >> 32) as u32);
        raw::pending(&self.inner, line, seq).ok_or(Status::Invalid)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_finish(
    connection: *mut ConnectionHandle,
    pending: PendingCall,
    deadline_ns: i64,
    message: *mut In,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let (Ok(handle), false) = (unsafe { handle(connection) }, message.is_null()) else {
            return Status::Invalid;
        };
        let outcome = match handle.pending(pending) {
            Ok(pending) => handle.inner.finish(pending, deadline(deadline_ns)).map(drop),
            Err(status) => {
                // SAFETY: not null, so it can be written as the header asks.
                unsafe { message::clear(message, 0) };
                return status;
            }
        };
        // SAFETY: the message is not null, so it can be written as the header asks.
        unsafe { handle.show(outcome, message) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_give_up(connection: *mut ConnectionHandle, pending: PendingCall) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let Ok(handle) = (unsafe { handle(connection) }) else { return Status::Invalid };
        status(handle.pending(pending).map(|pending| handle.inner.give_up(&pending)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_send(
    connection: *mut ConnectionHandle,
    out: *mut Out,
    deadline_ns: i64,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let Ok(handle) = (unsafe { handle(connection) }) else { return Status::Invalid };
        // SAFETY: null or begun by us, as the header asks; what is sent has been copied on return.
        status(unsafe { handle.take_draft(out) }.and_then(|draft| {
            draft.send(deadline(deadline_ns)).map_err(|error| Status::of_call(&error))
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_notify(connection: *mut ConnectionHandle, bits: u64) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let Ok(handle) = (unsafe { handle(connection) }) else { return Status::Invalid };
        status(handle.inner.notify(bits).map_err(|error| Status::of_call(&error)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_wait_notify(
    connection: *mut ConnectionHandle,
    deadline_ns: i64,
    bits: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let (Ok(handle), false) = (unsafe { handle(connection) }, bits.is_null()) else {
            return Status::Invalid;
        };
        let found = handle.inner.wait_notify(deadline(deadline_ns));
        // SAFETY: not null, so it can be written as the header asks.
        let taken = found.map(|found| unsafe { bits.write(found) });
        status(taken.map_err(|error| Status::of_call(&error)))
    })
}
