//! The client's half: connections, requests, answers.

use super::errno::guard_or;
use super::handle::{deadline, first_number, free, give, guard, handle, status};
use super::message::{self, Received, begun};
use super::options::{address, connect_options};
use super::parts;
use super::scratch::Scratch;
use super::status::Status;
use super::types::{Client, In, LocalObject, Options, Out, PendingCall, WaitOut};
use crate::connection::{Connection, Pending};
use crate::deadline::Deadline;
use crate::draft::{self, BodyStorage, Draft};
use crate::layout::INLINE_MAX;
use crate::rt::CallError;
use core::ffi::{c_char, c_int, c_void};
use rustix::fd::AsRawFd;

/// `sj_connection`.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    pub(super) inner: Connection,
    pub(super) received: Received,
    drafting: Drafting,
    scratch: Scratch,
}

/// The request under construction.
#[derive(Debug)]
struct Drafting {
    /// Which one it is: the number its `sj_out` carries.
    number: u64,
    body_len: usize,
    state: State,
    /// Slots' requests sent when it was begun: the area of the next slot is another by now if there
    /// were more.
    seq: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    /// In the connection's words.
    Short,
    Long(BodyStorage),
    TooLarge,
}

/// The word that names this handle.
#[inline]
fn word_of(handle: &mut ConnectionHandle) -> u64 {
    core::ptr::from_mut(handle).expose_provenance() as u64
}

impl ConnectionHandle {
    fn new(inner: Connection) -> Self {
        let drafting =
            Drafting { number: first_number(), body_len: 0, state: State::Closed, seq: 0 };
        Self { inner, received: Received::default(), drafting, scratch: Scratch::default() }
    }

    #[inline]
    fn begin(&mut self, body_len: usize) -> *mut u8 {
        self.drafting.number += 1;
        self.drafting.body_len = body_len;
        if body_len <= INLINE_MAX {
            self.drafting.state = State::Short;
            return self.inner.words.as_mut_ptr().cast();
        }
        let (state, body) = self.begin_long(body_len);
        self.drafting.state = state;
        self.drafting.seq = self.inner.seq;
        body
    }

    /// Sends the request under construction if that is `out`, short, with nothing beside its body,
    /// and if the call line is free.
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
        if number != self.drafting.number || has_parts {
            return None;
        }
        // SAFETY: as above.
        let (op, body_len) = unsafe { ((*out).op, (*out).body_len) };
        if !matches!(self.drafting.state, State::Short) || body_len > self.drafting.body_len {
            return None;
        }
        let pending = self.inner.post_short(op, body_len)?;
        self.drafting.state = State::Closed;
        Some(pending)
    }

    #[inline(never)]
    fn begin_long(&mut self, body_len: usize) -> (State, *mut u8) {
        if body_len as u64 > self.inner.parts.request_max {
            return (State::TooLarge, self.scratch.room(body_len));
        }
        let (place, body) = draft::place(&mut self.inner, body_len);
        (State::Long(place), body)
    }

    /// The request under construction, if that is `out`: complete, to be sent.
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
        if number != self.drafting.number || body_len > self.drafting.body_len {
            return Err(Status::Invalid);
        }
        let place = match core::mem::replace(&mut self.drafting.state, State::Closed) {
            State::Short => BodyStorage::Inline,
            State::Long(place) => place,
            State::TooLarge => return Err(Status::TooLarge),
            State::Closed => return Err(Status::Invalid),
        };
        if place == (BodyStorage::Area { direct: false }) && self.drafting.seq != self.inner.seq {
            return Err(Status::Invalid);
        }
        // SAFETY: the caller's contract.
        let has_parts = unsafe { parts::has_any(out) };
        if has_parts {
            // SAFETY: as above.
            unsafe { parts::check(out)? };
        }
        let mut draft = Draft::resume(&mut self.inner, op, body_len, place);
        if has_parts {
            // SAFETY: as above; checked.
            unsafe { parts::attach(out, draft.encoder())? };
        }
        Ok(draft)
    }

    /// Shows C the outcome of a call.
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
                unsafe { message::fill(message, &self.inner.incoming, this, number) };
                Status::Ok
            }
            // SAFETY: the caller's contract.
            Err(error) => unsafe { refuse(message, &error) },
        }
    }
}

/// No message, but a status.
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
            None => connection.parts.policy.wait(),
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
    // SAFETY: not null, so it can be written as the header asks.
    unsafe { begun(out, body, body_len, op, false, handle.drafting.number) };
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
            // SAFETY: as above, and the message can be written.
            None => return unsafe { call_rare(handle, out, deadline, message) },
        };
        // SAFETY: not null, so it can be written as the header asks.
        unsafe { handle.show(outcome, message) }
    })
}

/// As `sj_call`, for any request.
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
        status(submitted.map(|Pending { line, seq }| {
            let opaque = u64::from(line) | u64::from(seq) << 32;
            // SAFETY: not null, so it can be written as the header asks.
            unsafe { pending.write(PendingCall { opaque }) };
        }))
    })
}

impl ConnectionHandle {
    /// The outstanding call that C names.
    fn pending(&self, pending: PendingCall) -> Result<Pending, Status> {
        let line = u8::try_from(pending.opaque as u32).map_err(|_| Status::Invalid)?;
        let pending = Pending { line, seq: (pending.opaque >> 32) as u32 };
        if self.inner.is_outstanding(&pending) { Ok(pending) } else { Err(Status::Invalid) }
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
        // SAFETY: as above.
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
