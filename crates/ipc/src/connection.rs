//! A connection: the client's side of the request ring and the reply lines.
//!
//! # Theory of operation
//! Requests go into slots in order; an answer comes to the *reply line* that the request names, and
//! carries the request's sequence number, so an answer that comes too late for its call is never
//! taken for another's. A line whose call was given up stays out of use until its answer has come.
//! Not here: putting a request together (`draft`), connecting (`connect`).

use crate::control::{self, Inbox};
use crate::deadline::Deadline;
use crate::fault;
use crate::layout::{
    CALL_LINE, DIRECT, Header, INLINE_WORDS, Kind, PAGE, Region, distance, is_answer, is_direct,
    next_seq,
};
use crate::link::ClientLink;
use crate::lock::lock;
use crate::message::Incoming;
use crate::reason::Reason;
use crate::rt::{Beside, CallError, ClientId};
use crate::shared::Shared;
use crate::wait::{Policy, Wait};
use core::any::Any;
use core::time::Duration;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_shm::{Ordering, Span, ring};
use std::sync::Arc;

pub(crate) mod replies;
mod sharing;
mod waiting;

/// How long a waiter sleeps on its bell before it moves to the socket, where it also sees death.
const ON_BELL: Duration = Duration::from_millis(5);
/// Batches of descriptors from the server that may wait for their answers.
const BATCHES_MAX: usize = 128;

/// Messages from this length on (bytes) travel in pieces where that pays: in so many, of this
/// length at most. Measured: `docs/understand/benchmarks.md`.
const SPLIT_MIN: usize = 6 << 10;
const PIECES: usize = 4;
const PIECE_MAX: usize = 32 << 10;
/// With fewer slots there is no place for the next piece.
const SPLIT_SLOTS_MIN: u32 = 4;

/// What a connection is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: ClientId,
    pub(crate) region: Region,
    pub(crate) socket: OwnedFd,
    pub(crate) policy: Policy,
    pub(crate) request_max: u64,
    /// The server would rather have messages in one piece, where they fit.
    pub(crate) wants_whole: bool,
    pub(crate) reply_max: u64,
    /// The endpoint, if it lives in this address space.
    pub(crate) space: Option<Arc<Shared>>,
}

/// A client's connection to an endpoint. One thread uses it at a time; open one per thread.
#[derive(Debug)]
pub struct Connection {
    pub(crate) parts: Parts,
    /// The server's link, if it lives in this address space.
    pub(crate) link: Option<Arc<ClientLink>>,
    /// Sequence number of the last request on the call line.
    call: u32,
    /// Sequence number of the last request in a slot, and of the last one the server is known to
    /// have taken.
    pub(crate) seq: u32,
    consumed: u32,
    /// Reply lines that wait for an answer, and those of them whose call was given up.
    busy: u128,
    given_up: u128,
    /// Call outstanding on each line.
    calls: [u32; 65],
    /// A request was given up of which the server has only some pieces.
    pub(crate) is_torn: bool,
    server_cpu: u16,
    /// Where inline bodies, and bodies too large for an area, are put together.
    pub(crate) words: Box<[u64; INLINE_WORDS]>,
    pub(crate) own: Vec<u64>,
    /// Lists for what travels beside a body, lent to one draft after another.
    pub(crate) spare: Option<Box<Beside<'static>>>,
    pub(crate) incoming: Incoming,
    inbox: Inbox,
    /// Answers to registrations: grant, code.
    done: Vec<(u32, u64)>,
    next_grant: u32,
    ended: Option<Reason>,
    /// The kernel could not give us descriptors that came.
    has_lost_fds: bool,
}

/// A call that has been sent and not yet waited for. One that is not finished or given up keeps
/// its place among the connection's outstanding calls.
#[must_use = "finish it, or give it up"]
#[derive(Debug, PartialEq, Eq)]
pub struct Pending {
    pub(crate) line: u8,
    pub(crate) seq: u32,
}

impl Connection {
    pub(crate) fn new(parts: Parts) -> Self {
        let link = parts.space.as_ref().and_then(|space| space.link(parts.id));
        Self {
            parts,
            link,
            call: DIRECT,
            seq: 0,
            consumed: 0,
            busy: 0,
            given_up: 0,
            calls: [0; 65],
            is_torn: false,
            server_cpu: 0,
            words: Box::new([0; INLINE_WORDS]),
            own: Vec::new(),
            spare: None,
            incoming: Incoming::new(),
            inbox: Inbox::default(),
            done: Vec::new(),
            next_grant: 1,
            ended: None,
            has_lost_fds: false,
        }
    }

    /// Who we are to the server.
    pub fn id(&self) -> ClientId {
        self.parts.id
    }

    /// Why the connection has ended, if it has.
    pub fn ended(&self) -> Option<Reason> {
        self.ended
    }

    /// Waits in another way from now on, for answers, for room and for notifications; answers the
    /// way before. Messages being put together and calls outstanding are as they were. The server's
    /// own waiting is its own.
    #[inline]
    pub fn set_wait(&mut self, wait: Wait) -> Wait {
        self.parts.policy.set_wait(wait)
    }

    /// The control socket: readable when the server has gone. Not to be read.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.parts.socket.as_fd()
    }

    /// What the server registered for direct calls, if it lives in this address space.
    pub fn local(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.parts.space.as_ref()?.local_object()
    }

    /// Whether the server lives in this address space.
    pub fn is_local(&self) -> bool {
        self.link.is_some()
    }

    /// Whether this call is outstanding: neither finished nor given up.
    pub(crate) fn is_outstanding(&self, pending: &Pending) -> bool {
        self.calls.get(pending.line as usize) == Some(&pending.seq)
            && self.busy & !self.given_up & 1 << pending.line != 0
    }

    /// Gives up a call that was submitted. Its answer, when it comes, is thrown away.
    pub fn give_up(&mut self, pending: &Pending) {
        // Not one that was finished or given up before: its line may be another's by now.
        if self.calls.get(pending.line as usize) == Some(&pending.seq) {
            self.given_up |= self.busy & 1 << pending.line;
        }
    }

    /// Whether the call line is free for one more call.
    #[inline]
    pub(crate) fn is_call_line_free(&mut self) -> bool {
        if self.given_up != 0 {
            self.reclaim();
        }
        // One more than agreed would have its place, but agreed is agreed.
        self.busy == 0
            || self.busy & 1 << CALL_LINE == 0
                && self.busy.count_ones() < self.parts.region.layout.slots
    }

    /// Takes a free reply line: the call line for a request that may use it, else another.
    #[inline]
    pub(crate) fn take_line(&mut self, may_be_direct: bool) -> Result<u8, CallError> {
        if may_be_direct && self.is_call_line_free() {
            self.busy |= 1 << CALL_LINE;
            return Ok(CALL_LINE);
        }
        if self.given_up != 0 {
            self.reclaim();
        }
        let line = (self.busy | 1 << CALL_LINE).trailing_ones();
        if line >= self.parts.region.layout.lines()
            || self.busy.count_ones() >= self.parts.region.layout.slots
        {
            return Err(CallError::Busy);
        }
        self.busy |= 1 << line;
        Ok(line as u8)
    }

    /// Publishes a call of operation `op` whose body is the first `body_len` bytes of `words`, with
    /// nothing beside it, on the call line; `None` if that is not free.
    #[inline]
    pub(crate) fn post_short(&mut self, op: u16, body_len: usize) -> Option<Pending> {
        if self.is_torn || !self.is_call_line_free() {
            return None;
        }
        self.busy |= 1 << CALL_LINE;
        let mut header = self.next_header(Kind::Call, CALL_LINE, true);
        header.op = op;
        header.len = body_len as u8;
        self.publish_words(&header, body_len.div_ceil(8));
        self.set_call(CALL_LINE, header.seq);
        Some(Pending { line: CALL_LINE, seq: header.seq })
    }

    pub(crate) fn set_call(&mut self, line: u8, seq: u32) {
        if let Some(call) = self.calls.get_mut(line as usize) {
            *call = seq;
        }
    }

    pub(crate) fn free_line(&mut self, line: u8) {
        self.busy &= !(1 << line);
        self.given_up &= !(1 << line);
    }

    /// Takes back the lines of given-up calls whose answers have come.
    #[inline(never)]
    fn reclaim(&mut self) {
        let given_up = self.given_up;
        for line in 0..self.parts.region.layout.lines() as u8 {
            let seq = self.calls[line as usize];
            let has_come = is_answer(self.parts.region.reply(line).tag(), seq);
            if self.given_up & (1 << line) != 0 && has_come {
                self.free_line(line);
                self.inbox.take(seq);
                if let Some(link) = &self.link {
                    lock(&link.local).replies.retain(|(number, _)| *number != seq);
                }
            }
        }
        if self.given_up != given_up && self.ended.is_none() {
            // Their descriptors must not fill the socket.
            self.drain();
        }
    }

    /// Header of the next request, on the call line or in a slot.
    #[inline]
    pub(crate) fn next_header(&mut self, kind: Kind, line: u8, is_direct: bool) -> Header {
        Header {
            seq: next_seq(if is_direct { self.call } else { self.seq }),
            op: 0,
            kind,
            flags: 0,
            len: 0,
            line,
            fds: 0,
            items: 0,
            cpu: self.parts.policy.cpu(),
            grants: 0,
            after: if is_direct { self.seq as u8 } else { 0 },
        }
    }

    /// Publishes the next request and wakes the server if it sleeps.
    #[inline]
    pub(crate) fn publish(&mut self, header: &Header, words: &[u64]) {
        self.publish_quietly(header, words);
        self.ring_server();
    }

    /// Publishes the next request, or a piece of one; who sleeps is not woken yet.
    #[inline]
    pub(crate) fn publish_quietly(&mut self, header: &Header, words: &[u64]) {
        let region = &self.parts.region;
        region.request(header.seq).publish(header.tag(), header.meta(), words);
        self.published(header.seq);
    }

    /// Publishes a request whose body is the first `count` of `words`.
    #[inline]
    pub(crate) fn publish_words(&mut self, header: &Header, count: usize) {
        let words = &self.words[..count.min(INLINE_WORDS)];
        let region = &self.parts.region;
        region.request(header.seq).publish(header.tag(), header.meta(), words);
        self.published(header.seq);
        self.ring_server();
    }

    #[inline]
    fn published(&mut self, seq: u32) {
        match is_direct(seq) {
            true => self.call = seq,
            false => self.seq = seq,
        }
        fault::point("client.published");
    }

    /// Wakes the server if it sleeps.
    #[inline]
    pub(crate) fn ring_server(&self) {
        control::ring(self.parts.region.server_bell(), &self.parts.socket);
    }

    /// Whether the server was last seen on this very processor, where it cannot run while we do.
    pub(crate) fn is_server_here(&mut self) -> bool {
        self.server_cpu == self.parts.policy.cpu()
    }

    /// Length of the pieces in which a message of `len` bytes gets there sooner than in whole
    /// areas: the server, on another processor, copies one piece out while we copy the next one in.
    /// `None` where that does not pay.
    pub(crate) fn piece_len(&mut self, len: u64) -> Option<usize> {
        let layout = self.parts.region.layout;
        let len = usize::try_from(len).ok().filter(|len| *len >= SPLIT_MIN)?;
        let pays = !self.parts.wants_whole
            && layout.slots >= SPLIT_SLOTS_MIN
            && self.link.is_none()
            && !self.is_server_here();
        pays.then(|| len.div_ceil(PIECES).next_multiple_of(PAGE).min(PIECE_MAX).min(layout.area))
    }

    /// Where the piece in slot `seq` goes, with its offset in the slot's area: to the whole of it,
    /// or to `piece_len` bytes. Those take turns within the area: memory that the peer has read a
    /// while ago is written faster than memory that it read last (`docs/understand/benchmarks.md`).
    pub(crate) fn piece_area(&self, seq: u32, piece_len: Option<usize>) -> (u64, Span<'_>) {
        let layout = self.parts.region.layout;
        let area = self.parts.region.request_area(seq);
        let Some(len) = piece_len else { return (0, area) };
        let turns = (layout.area / len).max(1);
        let offset = (seq / layout.slots) as usize % turns * len;
        area.part(offset, len).map_or((0, area), |part| (offset as u64, part))
    }

    /// Whether a request slot is free.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        let slots = self.parts.region.layout.slots;
        if distance(self.consumed, self.seq) < slots {
            return true;
        }
        // SYNC: acquire; pairs with the release store in `publish_consumed`.
        let consumed = self.parts.region.consumed().load(Ordering::Acquire);
        // A server that counts more than we sent is not believed.
        if distance(consumed, self.seq) <= slots {
            self.consumed = consumed;
        }
        distance(self.consumed, self.seq) < slots
    }

    pub(crate) fn wait_for_room(&mut self, deadline: Deadline) -> Result<(), CallError> {
        if self.has_room() {
            return Ok(());
        }
        // Pieces may have been published quietly.
        self.ring_server();
        let (seq, slots) = (self.seq, self.parts.region.layout.slots);
        ring::want_room(self.parts.region.want(), seq, slots);
        self.wait(deadline, move |region| ring::has_room(region.consumed(), seq, slots))?;
        if self.has_room() { Ok(()) } else { Err(self.end(Reason::BadSequence)) }
    }

    /// Notes that the connection is over.
    #[cold]
    fn end(&mut self, reason: Reason) -> CallError {
        let told = self.parts.region.reason().load(Ordering::Acquire);
        let reason = if told == 0 { reason } else { Reason::from_code(told) };
        let _ = rustix::net::shutdown(&self.parts.socket, rustix::net::Shutdown::Both);
        CallError::Disconnected(*self.ended.get_or_insert(reason))
    }
}
