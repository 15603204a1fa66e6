//! A connection: the client's side of the request ring and the reply lines.
//!
//! # Theory of operation
//! Requests go into slots in order; an answer comes to the *reply line* that the request names, and
//! carries the request's sequence number, so an answer that comes too late for its call is never
//! taken for another's. A line whose call was given up stays out of use until its answer has come.
//! Not here: putting a request together (`draft`), connecting (`connect`).

use crate::address::Address;
use crate::connect::{self, ConnectError, ConnectOptions, wait_for};
use crate::control::{self, Inbox, Packet, Received, Topic};
use crate::deadline::Deadline;
use crate::draft::Draft;
use crate::endpoint::Shared;
use crate::fault;
use crate::grant::Memory;
use crate::layout::{
    BY_REFERENCE, CALL_LINE, DIRECT, Header, INLINE_WORDS, Kind, LONG, Region, distance, is_answer,
    is_direct, next_seq,
};
use crate::link::{Link, lock};
use crate::message::{Incoming, bytes_of_mut};
use crate::reason::Reason;
use crate::rt::{Beside, CallError, ClientId, Decoder, Fault};
use crate::wait::{Policy, Spun};
use core::any::Any;
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_shm::{Access, Ordering, futex, park, ring};
use std::sync::Arc;

/// How long a waiter sleeps on its bell before it moves to the socket, where it also sees death.
const ON_BELL: Duration = Duration::from_millis(5);
/// Parcels of descriptors from the server that may wait for their answers.
const PARCELS_MAX: usize = 128;

/// What a connection is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: ClientId,
    pub(crate) region: Region,
    pub(crate) socket: OwnedFd,
    pub(crate) policy: Policy,
    pub(crate) request_max: u64,
    pub(crate) reply_max: u64,
    /// The endpoint, if it lives in this address space.
    pub(crate) space: Option<Arc<Shared>>,
}

/// A client's connection to an endpoint. One thread uses it at a time; open one per thread.
#[derive(Debug)]
pub struct Connection {
    pub(crate) parts: Parts,
    /// The server's link, if it lives in this address space.
    pub(crate) link: Option<Arc<Link>>,
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
    /// Connects to an endpoint.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(address: Address, options: &ConnectOptions) -> Result<Self, ConnectError> {
        connect::connect(address, options)
    }

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

    /// Begins a request for operation `op` with a body of `body_len` bytes. Cannot fail: a body that
    /// is too large is found when it is sent.
    #[inline]
    pub fn start<'d>(&mut self, op: u16, body_len: usize) -> Draft<'_, 'd> {
        Draft::new(self, op, body_len)
    }

    /// Who we are to the server.
    pub fn id(&self) -> ClientId {
        self.parts.id
    }

    /// Why the connection has ended, if it has.
    pub fn ended(&self) -> Option<Reason> {
        self.ended
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

    /// Waits for the answer to a call that was submitted.
    ///
    /// # Errors
    /// [`CallError`]; after [`CallError::Timeout`] the call is given up.
    #[inline]
    pub fn finish(&mut self, pending: Pending, deadline: Deadline) -> Result<Reply<'_>, CallError> {
        let Pending { line, seq } = pending;
        let ready = |region: &Region| is_answer(region.reply(line).tag(), seq);
        if let Err(error) = self.wait(deadline, ready) {
            self.give_up(&Pending { line, seq });
            if let Some(link) = &self.link {
                link.await_loan(seq);
            }
            return Err(error);
        }
        self.take_reply(line, seq, deadline)?;
        Ok(Reply { connection: self })
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

    /// Copies the answer on `line` out of the region and frees the line.
    #[inline]
    fn take_reply(&mut self, line: u8, seq: u32, deadline: Deadline) -> Result<(), CallError> {
        if !is_direct(seq) && distance(self.consumed, seq) < DIRECT / 2 {
            self.consumed = seq;
        }
        let reply = self.parts.region.reply(line);
        let mut meta = [0];
        reply.copy_out(&mut meta);
        let header = Header::unpack(reply.tag(), meta[0]);
        let Some(header) = header.filter(|header| header.seq == seq && header.grants == 0) else {
            return Err(self.end(Reason::BadHeader));
        };
        self.server_cpu = header.cpu;
        if header.kind == Kind::Result && header.flags == 0 {
            self.incoming.load_inline(header, reply);
        } else {
            self.take_rare(header, deadline)?;
        }
        let fds = if header.fds > 0 { self.take_fds(header) } else { Ok(()) };
        self.free_line(line);
        fds
    }

    #[inline(never)]
    fn take_rare(&mut self, header: Header, deadline: Deadline) -> Result<(), CallError> {
        let region = &self.parts.region;
        let line = header.line;
        let mut words = [0; 3];
        region.reply(line).copy_out(&mut words);
        let (total, body_len) = (words[1], words[2]);
        let taken = match (header.kind, header.flags) {
            (Kind::Fault, 0) => {
                self.free_line(header.line);
                // Descriptors that came ahead of an answer that could not be given.
                self.drain();
                self.inbox.take(header.seq);
                return Err(CallError::Fault(Fault(words[1] as u32)));
            }
            (Kind::Result, LONG) if total <= region.layout.area as u64 => {
                let area = region.reply_area(line);
                self.incoming.load_area(header, area, (total, body_len), true)
            }
            (Kind::Result, LONG) if total <= self.parts.reply_max => {
                if header.fds > 0 && self.ended.is_none() {
                    // While we still wait for that number.
                    self.drain();
                }
                let mut stream = self.fetch(header, total as usize, deadline)?;
                self.incoming.load_stream(header, &mut stream, (total, body_len))
            }
            (Kind::Result, flags) if flags == LONG | BY_REFERENCE => {
                let stream = self.link.as_ref().and_then(|link| {
                    let replies = &mut lock(&link.local).replies;
                    let at = replies.iter().position(|(seq, _)| *seq == header.seq)?;
                    Some(replies.swap_remove(at).1)
                });
                stream.and_then(|mut stream| {
                    self.incoming.load_stream(header, &mut stream, (total, body_len))
                })
            }
            _ => None,
        };
        taken.ok_or_else(|| self.end(Reason::BadLength))
    }

    /// Fetches an answer that is larger than its area, piece by piece.
    fn fetch(
        &mut self,
        header: Header,
        total: usize,
        deadline: Deadline,
    ) -> Result<Vec<u64>, CallError> {
        let line = header.line;
        let mut stream = vec![0; total.div_ceil(8)];
        let mut filled = 0;
        loop {
            let rest = &mut bytes_of_mut(&mut stream)[filled..total];
            filled += self.parts.region.reply_area(line).copy_to(rest);
            if filled == total {
                return Ok(stream);
            }
            let more = self.post_more(header.line, deadline).and_then(|seq| {
                self.set_call(header.line, seq);
                self.wait(deadline, |region| is_answer(region.reply(line).tag(), seq))
            });
            if let Err(error) = more {
                self.given_up |= 1 << header.line;
                return Err(error);
            }
        }
    }

    fn post_more(&mut self, line: u8, deadline: Deadline) -> Result<u32, CallError> {
        fault::point("client.more");
        self.wait_for_room(deadline)?;
        let header = self.next_header(Kind::More, line, false);
        self.publish(&header, &[]);
        Ok(header.seq)
    }

    fn take_fds(&mut self, header: Header) -> Result<(), CallError> {
        if self.ended.is_none() {
            self.drain();
        }
        let fds = self.inbox.take(header.seq).filter(|fds| fds.len() == header.fds as usize);
        let Some(fds) = fds else {
            return Err(match core::mem::take(&mut self.has_lost_fds) {
                true => CallError::System(rustix::io::Errno::MFILE.raw_os_error()),
                false => self.end(Reason::MissingDescriptors),
            });
        };
        for fd in fds {
            // As many as a header can announce, which is what a list holds.
            let _ = self.incoming.fds.push(fd);
        }
        Ok(())
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
    }

    #[inline]
    fn published(&mut self, seq: u32) {
        match is_direct(seq) {
            true => self.call = seq,
            false => self.seq = seq,
        }
        fault::point("client.published");
        match park::ring(self.parts.region.server_bell()) {
            park::AWAKE => {}
            how => self.wake_server(how),
        }
    }

    #[inline(never)]
    fn wake_server(&self, how: u32) {
        match how {
            park::ON_FUTEX => futex::wake(self.parts.region.server_bell()),
            _ => control::wake(&self.parts.socket),
        }
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
        let (seq, slots) = (self.seq, self.parts.region.layout.slots);
        ring::want_room(self.parts.region.want(), seq, slots);
        self.wait(deadline, move |region| ring::has_room(region.consumed(), seq, slots))?;
        if self.has_room() { Ok(()) } else { Err(self.end(Reason::BadSequence)) }
    }

    /// Sets notification bits for the server; bits set before it looks come to it once.
    ///
    /// # Errors
    /// [`CallError::Disconnected`].
    pub fn notify(&mut self, bits: u64) -> Result<(), CallError> {
        if let Some(reason) = self.ended {
            return Err(CallError::Disconnected(reason));
        }
        // SYNC: release; pairs with the acquire swap in the lane's `take_bits`.
        self.parts.region.to_server().fetch_or(bits, Ordering::Release);
        match park::ring(self.parts.region.server_bell()) {
            park::AWAKE => {}
            how => self.wake_server(how),
        }
        Ok(())
    }

    /// Waits for notification bits from the server, and takes them.
    ///
    /// # Errors
    /// [`CallError::Timeout`], [`CallError::Disconnected`].
    pub fn wait_notify(&mut self, deadline: Deadline) -> Result<u64, CallError> {
        self.wait(deadline, |region| region.to_client().load(Ordering::Relaxed) != 0)?;
        // SYNC: acquire; pairs with the release in the link's `notify`.
        Ok(self.parts.region.to_client().swap(0, Ordering::Acquire))
    }

    /// Shares memory with the server, to be passed by reference; answers its number.
    ///
    /// # Errors
    /// [`CallError`]; `TooLarge` where the server allows no more.
    pub fn register(&mut self, memory: &Memory, deadline: Deadline) -> Result<u32, CallError> {
        let id = self.next_grant;
        self.next_grant += 1;
        let mut packet = Packet::new(Topic::Register, id);
        packet.a = memory.len() as u64;
        packet.b = u64::from(memory.others() == Access::ReadWrite);
        self.send_packet(packet, &[memory.segment.as_fd()], deadline)?;
        match self.await_done(id, deadline)? {
            0 => Ok(id),
            _ => Err(CallError::TooLarge),
        }
    }

    /// Ends the sharing of memory; see [`crate::grant`] for what that can and cannot promise.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn unregister(&mut self, grant: u32, deadline: Deadline) -> Result<(), CallError> {
        self.send_packet(Packet::new(Topic::Unregister, grant), &[], deadline)?;
        self.await_done(grant, deadline).map(drop)
    }

    fn await_done(&mut self, id: u32, deadline: Deadline) -> Result<u64, CallError> {
        loop {
            if let Some(at) = self.done.iter().position(|(number, _)| *number == id) {
                return Ok(self.done.swap_remove(at).1);
            }
            if let Some(reason) = self.ended {
                return Err(CallError::Disconnected(reason));
            }
            if !connect::readable(&self.parts.socket, deadline) {
                return Err(CallError::Timeout);
            }
            self.drain();
        }
    }

    pub(crate) fn send_packet(
        &mut self,
        packet: Packet,
        fds: &[BorrowedFd<'_>],
        deadline: Deadline,
    ) -> Result<(), CallError> {
        loop {
            match control::send(self.parts.socket.as_fd(), packet, fds) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => {
                    // A peer that has shut its side down makes every wait end at once.
                    self.drain();
                    if let Some(reason) = self.ended {
                        return Err(CallError::Disconnected(reason));
                    }
                    let socket = &self.parts.socket;
                    if deadline.is_over() || !wait_for(socket, PollFlags::OUT, deadline) {
                        return Err(CallError::Timeout);
                    }
                }
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    return Err(self.end(Reason::PeerDied));
                }
                Err(error) => return Err(CallError::System(error.raw_os_error())),
            }
        }
    }

    /// Notes that the connection is over.
    #[cold]
    fn end(&mut self, reason: Reason) -> CallError {
        let told = self.parts.region.reason().load(Ordering::Acquire);
        let reason = if told == 0 { reason } else { Reason::from_code(told) };
        let _ = rustix::net::shutdown(&self.parts.socket, rustix::net::Shutdown::Both);
        CallError::Disconnected(*self.ended.get_or_insert(reason))
    }

    /// Whether a call with that number waits for its answer.
    fn is_awaited(&self, seq: u32) -> bool {
        let awaited = self.busy & !self.given_up;
        (0..).zip(&self.calls).any(|(line, call)| awaited & 1u128 << line != 0 && *call == seq)
    }

    /// Reads the control packets that are there.
    fn drain(&mut self) {
        while let Some(result) = self.drain_one() {
            if let Err(reason) = result {
                self.end(reason);
                return;
            }
        }
    }

    fn drain_one(&mut self) -> Option<Result<(), Reason>> {
        let (packet, fds) = match control::receive(self.parts.socket.as_fd()) {
            Received::Packet { packet, fds, lost, .. } => {
                self.has_lost_fds |= lost;
                (packet, fds)
            }
            Received::Empty => return None,
            Received::Nonsense => return Some(Err(Reason::BadPacket)),
            Received::Ended => return Some(Err(Reason::PeerDied)),
        };
        Some(match packet.topic {
            Topic::Wake => Ok(()),
            Topic::Done => {
                self.done.push((packet.id, packet.a));
                Ok(())
            }
            // Those of an answer that nobody waits for any more.
            Topic::Descriptors if !self.is_awaited(packet.id) => Ok(()),
            Topic::Descriptors => match self.inbox.put(packet.id, fds, PARCELS_MAX) {
                true => Ok(()),
                false => Err(Reason::DescriptorFlood),
            },
            _ => Err(Reason::BadPacket),
        })
    }

    /// Waits until `ready`, the deadline, or the end of the connection. What was published before the
    /// end still counts.
    #[inline]
    fn wait(
        &mut self,
        deadline: Deadline,
        ready: impl Fn(&Region) -> bool + Copy,
    ) -> Result<(), CallError> {
        loop {
            let region = &self.parts.region;
            let spun = self.parts.policy.spin(self.server_cpu, deadline, || ready(region));
            if spun == Spun::Ready || ready(region) {
                return Ok(());
            }
            if let Some(reason) = self.ended {
                return Err(CallError::Disconnected(reason));
            }
            if deadline.is_over() {
                return Err(CallError::Timeout);
            }
            if self.parts.policy.parks() {
                self.park(deadline, &ready);
            } else {
                self.drain();
            }
        }
    }

    /// Sleeps: first on the bell, where a wake-up is cheapest; when it takes longer, on the socket,
    /// where the death of the server shows.
    #[inline(never)]
    fn park(&mut self, deadline: Deadline, ready: &dyn Fn(&Region) -> bool) {
        let region = &self.parts.region;
        let bell = region.client_bell();
        park::announce(bell, park::ON_FUTEX);
        fault::point("client.bell");
        let slice = deadline.left().map_or(ON_BELL, |left| left.min(ON_BELL));
        let mut woken = futex::Woken::Look;
        if !ready(region) {
            woken = futex::wait(bell, park::ON_FUTEX, Some(slice));
        }
        park::withdraw(bell);
        self.parts.policy.slept();
        let region = &self.parts.region;
        if woken == futex::Woken::Look || ready(region) {
            return;
        }
        park::announce(region.client_bell(), park::ON_SOCKET);
        fault::point("client.socket");
        if !ready(region) {
            connect::readable(&self.parts.socket, deadline);
        }
        park::withdraw(region.client_bell());
        self.drain();
    }
}

/// An answer: private memory, except for items that are still where the server put them.
#[derive(Debug)]
pub struct Reply<'c> {
    connection: &'c mut Connection,
}

impl Reply<'_> {
    /// The body, aligned to 8.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.connection.incoming.body()
    }

    /// Bytes of string item `index`.
    pub fn item_len(&self, index: usize) -> Option<usize> {
        self.connection.incoming.item(index).map(|item| item.len())
    }

    /// Copies string item `index` to where it belongs, once; answers how many bytes: the shorter length.
    pub fn item_into(&self, index: usize, target: &mut [u8]) -> Option<usize> {
        self.connection.incoming.item(index).map(|item| item.copy_into(target))
    }

    /// A copy of string item `index`.
    pub fn item(&self, index: usize) -> Option<Vec<u8>> {
        self.connection.incoming.item(index).map(|item| item.to_vec())
    }

    /// Descriptor `index`, once.
    pub fn take_fd(&mut self, index: usize) -> Option<OwnedFd> {
        self.connection.incoming.fds.take(index)
    }

    /// All of it, for generated stubs.
    #[inline]
    pub fn decoder(&mut self) -> Decoder<'_> {
        self.connection.incoming.decoder()
    }
}
