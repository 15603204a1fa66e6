//! The C functions of servers: receiving, answering, and control of clients.

use crate::errno::guard_or;
use crate::handle::{deadline, free, guard, handle, status as status_of};
use crate::message::{self, SERVER, begun};
use crate::server_handle::ServerHandle;
use crate::status::{self, Status};
use crate::token::Claim;
use crate::types::{Client, CredentialsOut, EventKind, EventOut, Out, Token};
use core::ffi::c_int;
use sojourn_ipc::raw::{self, CallNumbers, ClientRef};
use sojourn_ipc::{Badge, Deadline, Event, Fault, Reason, RecvError, Request};

/// Returns the word that names this handle.
#[inline]
fn word_of(handle: &mut ServerHandle) -> u64 {
    (core::ptr::from_mut(handle).expose_provenance() | SERVER) as u64
}

impl ServerHandle {
    /// Receives the next event and writes it to `event`.
    ///
    /// # Safety
    /// `event` can be written.
    #[inline]
    unsafe fn receive(&mut self, deadline: Deadline, event: *mut EventOut) -> Result<(), Status> {
        let endpoint = self.shared.id();
        let server = self.server.as_mut().ok_or(Status::Invalid)?;
        match server.recv(deadline) {
            Ok(Event::Call(request)) => {
                // SAFETY: the caller's contract.
                unsafe {
                    request_event(event, EventKind::Call, &request);
                    let client = request.client();
                    let CallNumbers { line, seq } = raw::leave(request);
                    (*event).token = Token::new(endpoint, Claim { client, line, seq });
                }
                // SAFETY: the event can be written, by the caller's contract.
                unsafe { self.show(event) };
                Ok(())
            }
            Ok(other) => {
                // SAFETY: the event can be written, by the caller's contract.
                if unsafe { rare_event(event, other) } {
                    // SAFETY: the event can be written, by the caller's contract.
                    unsafe { self.show(event) };
                }
                Ok(())
            }
            Err(RecvError::TimedOut) => Err(Status::Timeout),
            Err(RecvError::Closed) => Err(Status::Disconnected),
        }
    }

    /// Writes an event's message for C.
    ///
    /// # Safety
    /// `event` can be written.
    #[inline]
    unsafe fn show(&mut self, event: *mut EventOut) {
        let number = self.received.next();
        let this = word_of(self);
        if let Some(server) = &mut self.server {
            // SAFETY: the caller's contract.
            unsafe {
                message::fill(&raw mut (*event).message, raw::request_of(server), this, number)
            };
        }
    }
}

/// Writes the fields of a request besides its message.
///
/// # Safety
/// `event` can be written.
#[inline]
unsafe fn request_event(event: *mut EventOut, kind: EventKind, request: &Request<'_>) {
    // SAFETY: the caller's contract.
    unsafe {
        (*event).kind = kind;
        (*event).client = request.client().into();
        (*event).badge = request.badge().0;
    }
}

/// Writes an event other than a call. Returns true if a message comes with it.
///
/// # Safety
/// `event` can be written.
#[inline(never)]
unsafe fn rare_event(event: *mut EventOut, found: Event<'_>) -> bool {
    let (kind, client, badge) = match found {
        Event::Call(request) | Event::Send(request) => {
            // SAFETY: the caller's contract.
            unsafe {
                request_event(event, EventKind::Send, &request);
                (*event).token = Token::NOBODY;
            }
            return true;
        }
        Event::Notify { client, badge, bits } => {
            // SAFETY: the caller's contract.
            unsafe { (*event).bits = bits };
            (EventKind::Notify, client, badge)
        }
        Event::Connected { client, .. } => (EventKind::Connected, client, Badge::default()),
        Event::Gone { client, badge, reason } => {
            // SAFETY: the caller's contract.
            unsafe { (*event).reason = reason.code().cast_signed() };
            (EventKind::Gone, client, badge)
        }
    };
    // SAFETY: the caller's contract.
    unsafe {
        (*event).kind = kind;
        (*event).client = client.into();
        (*event).badge = badge.0;
        (*event).token = Token::NOBODY;
        message::clear(&raw mut (*event).message, 0);
    }
    false
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_server_free(server: *mut ServerHandle) {
    // SAFETY: null or a handle, as the header asks.
    unsafe { free(server) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_recv(
    server: *mut ServerHandle,
    deadline_ns: i64,
    event: *mut EventOut,
) -> Status {
    // SAFETY: as the header asks.
    unsafe { sj_reply_wait(server, core::ptr::null_mut(), deadline_ns, event) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_reply_start(
    server: *mut ServerHandle,
    token: *const Token,
    body_len: usize,
    out: *mut Out,
) {
    // SAFETY: null or a handle, null or readable, as the header asks.
    let both = unsafe { (handle(server), token.as_ref()) };
    let ((Ok(handle), Some(token)), false) = (both, out.is_null()) else { return };
    let body = guard_or(core::ptr::null_mut(), || handle.begin(token, body_len));
    let body = core::ptr::slice_from_raw_parts_mut(body, body_len);
    // SAFETY: not null, so it can be written as the header asks.
    unsafe { begun(out, body, 0, true, handle.drafting.number) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_reply(server: *mut ServerHandle, out: *mut Out) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let Ok(handle) = (unsafe { handle(server) }) else { return Status::Invalid };
        // SAFETY: null or begun by us, as the header asks; we return when it is sent.
        status_of(unsafe { handle.answer(out) }.map(|link| handle.give_back(link)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_reply_fault(
    server: *mut ServerHandle,
    token: *const Token,
    fault: u32,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, null or readable, as the header asks.
        let (Ok(handle), Some(token)) = (unsafe { (handle(server), token.as_ref()) }) else {
            return Status::Invalid;
        };
        status_of(handle.claim(token).and_then(|token| {
            let link = raw::send_reply(token.fault(Fault(fault)))?;
            handle.give_back(link);
            Ok(())
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_token_drop(server: *mut ServerHandle, token: *const Token) -> Status {
    // SAFETY: as the header asks.
    unsafe { sj_reply_fault(server, token, Fault::DROPPED.0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_reply_wait(
    server: *mut ServerHandle,
    out: *mut Out,
    deadline_ns: i64,
    event: *mut EventOut,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let (Ok(handle), false) = (unsafe { handle(server) }, event.is_null()) else {
            return Status::Invalid;
        };
        if !out.is_null() && handle.server.is_some() {
            // SAFETY: begun by us, as the header asks; it is sent before we return.
            match unsafe { handle.answer(out) } {
                Ok(link) => handle.give_back(link),
                Err(Status::Gone) => {}
                Err(status) => return status,
            }
        }
        // SAFETY: not null, so it can be written as the header asks.
        status_of(unsafe { handle.receive(deadline(deadline_ns), event) })
    })
}

/// Runs `act` on a client's link.
///
/// # Safety
/// Null or a handle.
unsafe fn with_client(
    server: *mut ServerHandle,
    client: Client,
    act: impl FnOnce(&ClientRef),
) -> Status {
    guard(|| {
        // SAFETY: the caller's contract.
        let Ok(handle) = (unsafe { handle(server) }) else { return Status::Invalid };
        let Some(link) = handle.link(client.into()) else { return Status::Gone };
        let is_gone = link.ended().is_some();
        if !is_gone {
            act(&link);
        }
        handle.give_back(link);
        if is_gone { Status::Gone } else { Status::Ok }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_notify_client(
    server: *mut ServerHandle,
    client: Client,
    bits: u64,
) -> Status {
    // SAFETY: as the header asks.
    unsafe { with_client(server, client, |link| link.notify(bits)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_set_badge(server: *mut ServerHandle, client: Client, badge: u64) -> Status {
    // SAFETY: as the header asks.
    unsafe { with_client(server, client, |link| link.set_badge(Badge(badge))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_credentials_of(
    server: *mut ServerHandle,
    client: Client,
    out: *mut CredentialsOut,
) -> Status {
    if out.is_null() {
        return Status::Invalid;
    }
    // SAFETY: as the header asks.
    unsafe {
        with_client(server, client, |link| {
            let who = link.credentials();
            out.write(CredentialsOut { pid: who.pid, uid: who.uid, gid: who.gid });
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_expel(server: *mut ServerHandle, client: Client, reason: c_int) -> Status {
    let reason = match reason {
        0 => Some(Reason::Expelled),
        code => status::reason(code),
    };
    let Some(reason) = reason else { return Status::Invalid };
    // SAFETY: as the header asks.
    unsafe { with_client(server, client, |link| link.end(reason)) }
}
