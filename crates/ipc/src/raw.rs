//! Messages without borrows, for interfaces to languages that have no lifetimes.
//!
//! A request or an answer is begun by one call and completed by another, with numbers in between;
//! the caller checks the numbers: a wrong one gives a refused or a wrong message, or a panic, never
//! a wild access. The documentation leaves this module out, because `sojourn-ipc-c` alone uses it
//! and it changes with that crate. Not here: any function of the C interface.

use crate::connection::{Connection, Pending};
use crate::draft::{self, Draft};
use crate::endpoint::Endpoint;
use crate::layout::INLINE_MAX;
pub use crate::link::CallNumbers;
use crate::link::ClientLink;
pub use crate::message::{Counts, Incoming, bytes_of_mut};
use crate::reply::{self, ReadyReply, ReplyDraft, ReplyToken};
use crate::rt::{Badge, ClientId, Credentials, Gone, Reason};
use crate::server::Server;
use crate::server::request::{KeptGrant, Request};
pub use crate::shared::EndpointId;
use crate::shared::Shared;
use crate::wait::Wait;
pub use sojourn_shm::ring::Seq;
use std::sync::Arc;
use std::sync::atomic::Ordering;

// ---- requests ----

/// The place of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPlace(draft::BodyStorage);

impl RequestPlace {
    /// The connection's words: [`words`].
    pub const WORDS: Self = Self(draft::BodyStorage::Inline);

    /// Returns true for the area of the next slot, which is another area once a request was sent:
    /// see [`slot_seq`].
    #[inline]
    pub fn is_next_slot(self) -> bool {
        self.0 == draft::BodyStorage::Area { direct: false }
    }
}

/// Returns the memory for bodies of up to [`INLINE_MAX`] bytes, aligned to 8.
#[inline]
pub fn words(connection: &mut Connection) -> *mut u8 {
    connection.words.as_mut_ptr().cast()
}

/// Returns the sequence number of the last request in a slot.
#[inline]
pub fn slot_seq(connection: &Connection) -> Seq {
    connection.seq
}

/// Returns the length of the longest request that the server accepts.
#[inline]
pub fn request_max(connection: &Connection) -> u64 {
    connection.parts.request_max
}

/// Returns the connection's way of waiting.
pub fn wait_of(connection: &Connection) -> Wait {
    connection.parts.policy.wait()
}

/// The memory for a request's body.
#[derive(Clone, Copy, Debug)]
pub struct RequestBody {
    /// The place, with which the request is continued.
    pub place: RequestPlace,
    /// The first byte, at an address that is a multiple of 8.
    pub start: *mut u8,
}

/// Returns the memory for a body of `body_len` bytes, valid until the next message is begun or
/// sent.
#[inline]
pub fn place_request(connection: &mut Connection, body_len: usize) -> RequestBody {
    let draft::BodyPlace { storage, body } = draft::place(connection, body_len);
    RequestBody { place: RequestPlace(storage), start: body }
}

/// Continues a request whose body has been written at `place`, before any other message was sent.
#[inline]
pub fn resume_request<'c>(
    connection: &'c mut Connection,
    op: u16,
    body_len: usize,
    place: RequestPlace,
) -> Draft<'c, 'c> {
    Draft::resume(connection, op, body_len, place.0)
}

/// Sends a call whose body is the first `body_len` bytes of [`words`], without items, descriptors
/// or grants. Returns `None` if the call line is not free.
#[inline]
pub fn post_short(connection: &mut Connection, op: u16, body_len: usize) -> Option<Pending> {
    connection.post_short(op, body_len.min(INLINE_MAX))
}

/// Returns the numbers of an outstanding call.
#[inline]
pub fn numbers_of(pending: &Pending) -> CallNumbers {
    CallNumbers { line: pending.line, seq: pending.seq }
}

/// Returns the outstanding call with these numbers, if there is one.
#[inline]
pub fn pending(connection: &Connection, line: u8, seq: Seq) -> Option<Pending> {
    let pending = Pending { line, seq };
    connection.is_outstanding(&pending).then_some(pending)
}

/// Returns the answer that came last.
#[inline]
pub fn reply_of(connection: &mut Connection) -> &mut Incoming {
    &mut connection.incoming
}

// ---- servers ----

/// One client's state in the server, shared by all of the server's threads.
#[derive(Clone, Debug)]
pub struct ClientRef(Arc<ClientLink>);

impl ClientRef {
    /// Returns the reason why the client is gone; `None` while it is connected.
    #[inline]
    pub fn ended(&self) -> Option<Reason> {
        self.0.ended()
    }

    /// Returns the client's identifier.
    #[inline]
    pub fn id(&self) -> ClientId {
        self.0.id
    }

    /// Returns the client's credentials from the kernel.
    pub fn credentials(&self) -> Credentials {
        self.0.credentials
    }

    /// Gives the client a badge, which its next requests carry.
    pub fn set_badge(&self, badge: Badge) {
        self.0.badge.store(badge.0, Ordering::Relaxed);
    }

    /// Sets notification bits for the client.
    pub fn notify(&self, bits: u64) {
        self.0.notify(bits);
    }

    /// Ends the connection.
    pub fn end(&self, reason: Reason) {
        self.0.end(reason);
    }

    /// Returns the length of the longest answer that the client accepts.
    #[inline]
    pub fn reply_max(&self) -> u64 {
        self.0.reply_max
    }

    /// Returns true if call `seq` on `line` is outstanding and unclaimed.
    #[inline]
    pub fn is_outstanding(&self, line: u8, seq: Seq) -> bool {
        self.0.is_outstanding(line, seq)
    }

    /// Returns the calls that are outstanding and unclaimed.
    pub fn unclaimed(&self) -> impl Iterator<Item = CallNumbers> {
        let lines = 0..u8::try_from(self.0.lines.len()).unwrap_or(u8::MAX);
        lines.filter_map(|line| Some(CallNumbers { line, seq: self.0.unclaimed(line)? }))
    }

    /// Returns the memory for bodies of answers of up to [`INLINE_MAX`] bytes, aligned to 8.
    #[inline]
    pub fn words(&self, line: u8) -> Option<*mut u8> {
        Some(self.0.lines.get(line as usize)?.words.get().cast())
    }

    /// Returns the memory for the body of an answer on `line`, which is valid as long as link and
    /// place live and the call is outstanding.
    #[inline]
    pub fn place(&self, line: u8, body_len: usize) -> ReplyBody {
        let reply::BodyPlace { storage, body } = reply::place(&self.0, line, body_len);
        ReplyBody { place: ReplyPlace(storage), start: body }
    }

    /// Claims call `seq` on `line`, if that call is outstanding and unclaimed. Otherwise the link
    /// is given back.
    #[inline]
    pub fn claim(self, line: u8, seq: Seq) -> Result<ReplyToken, Self> {
        ReplyToken::claim(self.0, line, seq).map_err(Self)
    }
}

/// The place of an answer's body.
#[derive(Debug)]
pub struct ReplyPlace(reply::BodyStorage);

impl ReplyPlace {
    /// The reply line's words: [`ClientRef::words`].
    pub const WORDS: Self = Self(reply::BodyStorage::Inline);
}

/// The memory for an answer's body.
#[derive(Debug)]
pub struct ReplyBody {
    /// The place, with which the answer is continued.
    pub place: ReplyPlace,
    /// The first byte, at an address that is a multiple of 8.
    pub start: *mut u8,
}

/// Completes an answer that is only a body of `body_len` bytes in the line's words.
#[inline]
pub fn short_reply(token: ReplyToken, body_len: usize) -> ReadyReply {
    token.short(body_len)
}

/// Continues an answer whose body has been written at `place`.
#[inline]
pub fn resume_reply<'d>(token: ReplyToken, place: ReplyPlace, body_len: usize) -> ReplyDraft<'d> {
    token.resume(place.0, body_len)
}

/// Publishes an answer and returns the link.
///
/// # Errors
/// [`Gone`] if the client was gone before, or wants no answer.
#[inline]
pub fn send_reply(reply: ReadyReply) -> Result<ClientRef, Gone> {
    reply.send_and_return().map(ClientRef)
}

/// The part of an endpoint that all its threads share.
#[derive(Clone, Debug)]
pub struct EndpointState(Arc<Shared>);

impl EndpointState {
    /// Returns the shared part of `endpoint`.
    pub fn of(endpoint: &Endpoint) -> Self {
        Self(Arc::clone(endpoint.shared()))
    }

    /// Returns the endpoint's identifier.
    #[inline]
    pub fn id(&self) -> EndpointId {
        self.0.id
    }

    /// Returns a client's link.
    pub fn link(&self, id: ClientId) -> Option<ClientRef> {
        self.0.link(id).map(ClientRef)
    }
}

/// Returns the request that came last.
#[inline]
pub fn request_of(server: &mut Server) -> &mut Incoming {
    &mut server.incoming
}

/// Leaves a call unclaimed and returns its numbers, by which [`ClientRef::claim`] claims the call
/// later.
/// A loan of the caller's memory lasts until the next message or [`return_loan`].
#[inline]
pub fn leave(request: Request<'_>) -> CallNumbers {
    request.leave()
}

/// Returns grant `index` of the request that came last for longer, if the client allows that.
pub fn keep_grant(server: &Server, index: usize) -> Option<KeptGrant> {
    server.keep_grant(index)
}

/// Lends the link of a client that this thread serves; [`give_back`] takes the link back.
#[inline]
pub fn lend(server: &mut Server, id: ClientId) -> Option<ClientRef> {
    server.lend(id).map(ClientRef)
}

/// Gives a link back, so that its reference count need not change for the next answer.
#[inline(always)]
pub fn give_back(server: &mut Server, link: ClientRef) {
    server.give_back(link.0);
}

/// Returns the links of all clients that this thread serves.
pub fn links(server: &Server) -> impl Iterator<Item = ClientRef> {
    server.links().map(|link| ClientRef(Arc::clone(link)))
}

/// Returns true if the thread reads memory that the caller of request `seq` has lent.
#[inline]
pub fn is_on_loan(server: &Server, client: ClientId, seq: Seq) -> bool {
    server.is_on_loan(client, seq)
}

/// Ends the loan of a caller's memory, which the caller may then change or free.
///
/// # Safety
/// Body and items of the request that came last are not read any more.
pub unsafe fn return_loan(server: &mut Server) {
    server.return_loan();
}
