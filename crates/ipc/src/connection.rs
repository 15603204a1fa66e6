//! A connection: the client's side of the request ring and the reply lines.
//!
//! # Theory of operation
//! Requests go into slots in order; an answer comes to the *reply line* that the request names, and
//! carries the request's sequence number, so a late answer is never taken for another call's. A
//! line whose call was given up is not used until its answer has come. Not here: building a request
//! (`draft`), connecting (`connect`).

use crate::apart::{Parted, Socket, WakeServer};
use crate::control::Inbox;
use crate::deadline::Deadline;
use crate::fault;
use crate::layout::{
    CALL_LINE, Header, INLINE_WORDS, Kind, PAGE, Region, Seq, distance, is_answer, next_seq,
};
use crate::link::ClientLink;
use crate::lock::lock;
use crate::message::Incoming;
use crate::rt::Reason;
use crate::rt::{Beside, CallError, ClientId, GrantId};
use crate::shared::Shared;
use crate::wait::{Policy, Wait};
use core::any::Any;
use core::time::Duration;
use rustix::fd::{AsFd, BorrowedFd};
use sojourn_shm::{AtomicU32, Ordering, Span, ring};
use std::sync::Arc;

pub(crate) mod replies;
mod sharing;
mod waiting;

/// The time for which a waiter sleeps on its bell before it sleeps on the socket, which also shows
/// the peer's death.
const ON_BELL: Duration = Duration::from_millis(5);
/// Batches of descriptors from the server that may wait for their answers.
const BATCHES_MAX: usize = 128;

/// The length in bytes from which messages travel in pieces if that pays, the number of pieces, and
/// their largest length. Measured in `docs/understand/benchmarks.md`.
const SPLIT_MIN: usize = 6 << 10;
const PIECES: usize = 4;
const PIECE_MAX: usize = 32 << 10;
/// The least number of slots for pieces; with fewer there is no slot for the next piece.
const SPLIT_SLOTS_MIN: u32 = 4;

/// The parts from which a connection is made.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: ClientId,
    pub(crate) region: Arc<Region>,
    pub(crate) socket: Socket,
    pub(crate) policy: Policy,
    pub(crate) request_max: u64,
    /// The server prefers messages in one piece if they fit.
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
    call: Seq,
    /// Sequence number of the last request in a slot.
    pub(crate) seq: Seq,
    /// Sequence number of the last request that the server is known to have taken.
    consumed: Seq,
    /// Bits of the reply lines that wait for an answer.
    busy: u128,
    /// Bits of the reply lines whose call was given up.
    given_up: u128,
    /// The call outstanding on each line.
    calls: [Seq; 65],
    /// A request was given up after the server got only some of its pieces.
    pub(crate) is_torn: bool,
    server_cpu: u16,
    /// The buffer for inline bodies; `own` is the buffer for bodies too large for an area.
    pub(crate) words: Box<[u64; INLINE_WORDS]>,
    pub(crate) own: Vec<u64>,
    /// Lists of items, descriptors and grants, lent to one draft after another.
    pub(crate) spare: Option<Box<Beside<'static>>>,
    pub(crate) incoming: Incoming,
    inbox: Inbox,
    /// Answers to registrations.
    done: Vec<GrantAnswer>,
    next_grant: GrantId,
    ended: Option<Reason>,
    /// The kernel could not deliver descriptors of a packet.
    has_lost_fds: bool,
}

/// The server's answer to a registration, or to its end.
#[derive(Clone, Copy, Debug)]
struct GrantAnswer {
    /// The grant's number.
    id: GrantId,
    /// 0, or the code of the reason for a refusal.
    code: u64,
}

/// A piece's place in an area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PiecePlace<'r> {
    /// The first byte within the slot's area.
    pub(crate) offset: u64,
    pub(crate) area: Span<'r>,
}

/// A call that has been sent and not yet waited for. A pending call occupies one of the
/// connection's outstanding calls until it is finished or given up.
#[must_use = "finish it, or give it up"]
#[derive(Debug, PartialEq, Eq)]
pub struct Pending {
    pub(crate) line: u8,
    pub(crate) seq: Seq,
}

impl Connection {
    pub(crate) fn new(parts: Parts) -> Self {
        let link = parts.space.as_ref().and_then(|space| space.link(parts.id));
        Self {
            parts,
            link,
            call: Seq::DIRECT,
            seq: Seq(0),
            consumed: Seq(0),
            busy: 0,
            given_up: 0,
            calls: [Seq(0); 65],
            is_torn: false,
            server_cpu: 0,
            words: Box::new([0; INLINE_WORDS]),
            own: Vec::new(),
            spare: None,
            incoming: Incoming::new(),
            inbox: Inbox::default(),
            done: Vec::new(),
            next_grant: GrantId(1),
            ended: None,
            has_lost_fds: false,
        }
    }

    /// Returns this client's identifier at the server.
    pub fn id(&self) -> ClientId {
        self.parts.id
    }

    /// Returns the reason why the connection has ended, if it has.
    pub fn ended(&self) -> Option<Reason> {
        self.ended
    }

    /// Changes the way of waiting for answers, room and notifications, and returns the old way.
    /// Drafts and outstanding calls are not affected, nor is the server's way of waiting.
    #[inline]
    pub fn set_wait(&mut self, wait: Wait) -> Wait {
        self.parts.policy.set_wait(wait)
    }

    /// Returns the control socket, which becomes readable when the server has gone. The caller must
    /// not read from it. Of a connection that has parted from its socket: `AT_FDCWD`, on which
    /// calls fail.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.parts.socket.here().map_or(rustix::fs::CWD, AsFd::as_fd)
    }

    /// Gives up the socket: from now on the connection makes only calls without descriptors, and
    /// registers no memory. `wake` is called where the server must be woken by a packet. Returns
    /// `None` if the connection has done so before.
    pub fn part_from_socket(&mut self, wake: WakeServer) -> Option<Parted> {
        self.parts.socket.part(&self.parts.region, wake)
    }

    /// Returns the word that this connection's thread sleeps on. 0, stored there by a signal
    /// handler on that thread, ends the sleep, and one that is about to begin.
    pub fn bell(&self) -> &AtomicU32 {
        self.parts.region.client_bell()
    }

    /// Returns the object that the server registered for direct calls, if the server is in this
    /// address space.
    pub fn local(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.parts.space.as_ref()?.local_object()
    }

    /// Returns true if the server is in this address space.
    pub fn is_local(&self) -> bool {
        self.link.is_some()
    }

    /// Returns true if this call is outstanding: neither finished nor given up.
    pub(crate) fn is_outstanding(&self, pending: &Pending) -> bool {
        self.calls.get(pending.line as usize) == Some(&pending.seq)
            && self.busy & !self.given_up & 1 << pending.line != 0
    }

    /// Gives up a submitted call. Its answer is dropped when it comes.
    pub fn give_up(&mut self, pending: &Pending) {
        // A call that was finished or given up before is ignored, because its line may be another
        // call's by now.
        if self.calls.get(pending.line as usize) == Some(&pending.seq) {
            self.given_up |= self.busy & 1 << pending.line;
        }
    }

    /// Returns true if the call line is free for one more call.
    #[inline]
    pub(crate) fn is_call_line_free(&mut self) -> bool {
        if self.given_up != 0 {
            self.reclaim();
        }
        // There would be a line for one more call than agreed, but the server may refuse it.
        self.busy == 0
            || self.busy & 1 << CALL_LINE == 0
                && self.busy.count_ones() < self.parts.region.layout.slots
    }

    /// Takes a free reply line: the call line for a request that may use it, otherwise another.
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

    /// Publishes a call of operation `op` on the call line. The body is the first `body_len` bytes
    /// of `words`, without items, descriptors or grants. Returns `None` if the call line is not
    /// free.
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

    pub(crate) fn set_call(&mut self, line: u8, seq: Seq) {
        if let Some(call) = self.calls.get_mut(line as usize) {
            *call = seq;
        }
    }

    pub(crate) fn free_line(&mut self, line: u8) {
        self.busy &= !(1 << line);
        self.given_up &= !(1 << line);
    }

    /// Frees the lines of given-up calls whose answers have come.
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
                    lock(&link.local).replies.retain(|reply| reply.seq != seq);
                }
            }
        }
        if self.given_up != given_up && self.ended.is_none() {
            // The answers' descriptors must not fill the socket.
            self.drain();
        }
    }

    /// Returns the header of the next request, on the call line or in a slot.
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
            after: if is_direct { self.seq.0 as u8 } else { 0 },
        }
    }

    /// Publishes the next request and wakes the server if it sleeps.
    #[inline]
    pub(crate) fn publish(&mut self, header: &Header, words: &[u64]) {
        self.publish_quietly(header, words);
        self.ring_server();
    }

    /// Publishes the next request, or a piece of one, without waking a sleeping server.
    #[inline]
    pub(crate) fn publish_quietly(&mut self, header: &Header, words: &[u64]) {
        let region = &self.parts.region;
        region.request(header.seq).publish(header.tag(), header.meta(), words);
        self.published(header.seq);
    }

    /// Publishes a request whose body is the first `count` words of `words`.
    #[inline]
    pub(crate) fn publish_words(&mut self, header: &Header, count: usize) {
        let words = &self.words[..count.min(INLINE_WORDS)];
        let region = &self.parts.region;
        region.request(header.seq).publish(header.tag(), header.meta(), words);
        self.published(header.seq);
        self.ring_server();
    }

    #[inline]
    fn published(&mut self, seq: Seq) {
        match seq.is_direct() {
            true => self.call = seq,
            false => self.seq = seq,
        }
        fault::point("client.published");
    }

    /// Wakes the server if it sleeps.
    #[inline]
    pub(crate) fn ring_server(&self) {
        self.parts.socket.ring(self.parts.region.server_bell());
    }

    /// Returns true if the server was last seen on this processor, on which it cannot run while
    /// this thread does.
    pub(crate) fn is_server_here(&mut self) -> bool {
        self.server_cpu == self.parts.policy.cpu()
    }

    /// Returns the length of the pieces in which a message of `len` bytes arrives sooner than in
    /// whole areas: the server, on another processor, copies one piece out while this side copies
    /// the next one in. `None` if splitting does not pay.
    pub(crate) fn piece_len(&mut self, len: u64) -> Option<usize> {
        let layout = self.parts.region.layout;
        let len = usize::try_from(len).ok().filter(|len| *len >= SPLIT_MIN)?;
        let pays = !self.parts.wants_whole
            && layout.slots >= SPLIT_SLOTS_MIN
            && self.link.is_none()
            && !self.is_server_here();
        pays.then(|| len.div_ceil(PIECES).next_multiple_of(PAGE).min(PIECE_MAX).min(layout.area))
    }

    /// Returns the place of the piece in slot `seq`: the whole area, or `piece_len` bytes of it.
    /// Pieces take turns within the area, because memory that the peer has read a while ago is
    /// written faster than memory that it read last (`docs/understand/benchmarks.md`).
    pub(crate) fn piece_area(&self, seq: Seq, piece_len: Option<usize>) -> PiecePlace<'_> {
        let layout = self.parts.region.layout;
        let area = self.parts.region.request_area(seq);
        let whole = PiecePlace { offset: 0, area };
        let Some(len) = piece_len else { return whole };
        let turns = (layout.area / len).max(1);
        let offset = (seq.0 / layout.slots) as usize % turns * len;
        let piece = |area| PiecePlace { offset: offset as u64, area };
        area.part(offset, len).map_or(whole, piece)
    }

    /// Returns true if a request slot is free.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        let slots = self.parts.region.layout.slots;
        if distance(self.consumed, self.seq) < slots {
            return true;
        }
        // SYNC: acquire; pairs with the release store in `publish_consumed`.
        let consumed = Seq(self.parts.region.consumed().load(Ordering::Acquire));
        // A count above the number of sent requests is ignored.
        if distance(consumed, self.seq) <= slots {
            self.consumed = consumed;
        }
        distance(self.consumed, self.seq) < slots
    }

    pub(crate) fn wait_for_room(&mut self, deadline: Deadline) -> Result<(), CallError> {
        if self.has_room() {
            return Ok(());
        }
        // Pieces may have been published without waking the server.
        self.ring_server();
        let (seq, slots) = (self.seq, self.parts.region.layout.slots);
        ring::want_room(self.parts.region.want(), seq, slots);
        self.wait(deadline, move |region| ring::has_room(region.consumed(), seq, slots))?;
        if self.has_room() { Ok(()) } else { Err(self.end(Reason::BadSequence)) }
    }

    /// Notes that the connection is over.
    #[cold]
    fn end(&mut self, reason: Reason) -> CallError {
        let published = self.parts.region.reason().load(Ordering::Acquire);
        let reason = if published == 0 { reason } else { Reason::from_code(published) };
        if let Some(socket) = self.parts.socket.here() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        CallError::Disconnected(*self.ended.get_or_insert(reason))
    }
}
