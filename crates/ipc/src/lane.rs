//! Reading one client's requests: the receiving half of the request ring.
//!
//! # Theory of operation
//! A short call comes on the *call line*, which also carries its answer: one cache line that
//! travels in both directions. All other requests, and calls while one is outstanding on the call
//! line, come in slots in order, each with the next sequence number. A call on the call line names
//! the slot's request after which it was published, so all requests are taken in the order in which
//! they were made. A lane looks at the tag of the next slot. The tag has either the old number
//! (nothing new), or the next number (a request), or another one: then the client breaks the
//! protocol and is disconnected. A request is copied out of the slot and the slot is given back
//! before the request's contents are interpreted. Requests larger than an area come in several
//! slots and are put together here, while other lanes are served: a lane never waits. Not here: the
//! order in which lanes are looked at (`server`).

use crate::fault;
use crate::layout::{
    BY_REFERENCE, CALL_LINE, DIRECT, Header, INLINE_WORDS, Kind, LONG, Seq, is_call, next_seq,
    tag_seq,
};
use crate::link::{CallStart, ClientLink, LocalRequest};
use crate::lock::lock;
use crate::message::{Incoming, StreamSizes, bytes_of_mut};
use crate::reply::{publish_consumed, send_more};
use crate::rt::Reason;
use crate::rt::gather::Extent;
use sojourn_shm::ring::{self, Expected, Next};
use sojourn_shm::{Line, Ordering, Span};
use std::sync::Arc;

/// A message whose pieces have not all come.
#[derive(Debug)]
struct Assembly {
    header: Header,
    sizes: StreamSizes,
    stream: Vec<u64>,
    filled: usize,
}

/// The result of a look at a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneEvent {
    /// Nothing new.
    Nothing,
    /// A piece was taken, but no message is complete yet.
    Progress,
    /// A message lies in the [`Incoming`].
    Message,
}

/// One client's state in the thread that serves it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) link: Arc<ClientLink>,
    /// A spare reference for the next token, so that counting it costs nothing.
    pub(crate) spare: Option<Arc<ClientLink>>,
    /// The next expected sequence numbers on the call line and in the slots; the first is 1.
    call: Seq,
    seq: Seq,
    /// True in the first round of the slots, in which empty slots have tag 0.
    is_first_round: bool,
    assembly: Option<Assembly>,
    /// The slot whose message's items are being read in its area, so that it is not given back yet.
    held: Option<Seq>,
    /// The processor on which the client was last seen.
    pub(crate) cpu: u16,
    /// The number of sleeps of the thread since this lane's last request.
    pub(crate) idle: u32,
    /// The number of needless wake-ups by this lane in a row.
    pub(crate) false_rings: u32,
    /// The number of looks since the client died.
    pub(crate) last_words: u32,
}

impl Lane {
    pub(crate) fn new(link: Arc<ClientLink>) -> Self {
        Self {
            spare: Some(Arc::clone(&link)),
            link,
            call: Seq(DIRECT | 1),
            seq: Seq(1),
            is_first_round: true,
            assembly: None,
            held: None,
            cpu: 0,
            idle: 0,
            false_rings: 0,
            last_words: 0,
        }
    }

    /// Returns a reference to the link for a token.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> Arc<ClientLink> {
        self.spare.take().unwrap_or_else(|| Arc::clone(&self.link))
    }

    /// Returns true if the region has a new message; costs three loads.
    #[inline(always)]
    pub(crate) fn has_something(&self) -> bool {
        let region = &self.link.region;
        is_call(region.reply(CALL_LINE).tag(), self.call)
            || tag_seq(region.slot(self.seq).tag()) == self.seq
            || region.to_server().load(Ordering::Relaxed) != 0
    }

    /// Takes the next request or piece, if there is one.
    ///
    /// # Errors
    /// The [`Reason`] if the client broke the protocol.
    #[inline(always)]
    pub(crate) fn poll(&mut self, incoming: &mut Incoming) -> Result<LaneEvent, Reason> {
        let expected = Expected {
            call: self.call,
            seq: self.seq,
            slots: self.link.region.layout.slots,
            is_first_round: self.is_first_round,
            may_call: self.assembly.is_none(),
        };
        let region = &self.link.region;
        match ring::next(region.reply(CALL_LINE), region.slot(self.seq), expected) {
            Next::Nothing => Ok(LaneEvent::Nothing),
            Next::Slot(tag) => self.take_slot(tag, incoming),
            Next::Call(tag) => self.take_call(tag, incoming),
            Next::Wrong => Err(Reason::BadSequence),
        }
    }

    #[inline(always)]
    fn take_call(&mut self, tag: u64, incoming: &mut Incoming) -> Result<LaneEvent, Reason> {
        let header = header(tag, self.link.region.reply(CALL_LINE))?;
        if header.line != CALL_LINE {
            return Err(Reason::BadLine);
        }
        let look = if header.flags == 0 {
            match self.link.begin_call(CALL_LINE, header.seq) {
                CallStart::Yes => {}
                CallStart::Later => return Ok(LaneEvent::Nothing),
                CallStart::No => return Err(Reason::BadLine),
            }
            incoming.load_inline(header, self.link.region.reply(CALL_LINE));
            LaneEvent::Message
        } else {
            self.take_request(header, incoming)?
        };
        if look != LaneEvent::Nothing {
            self.call = next_seq(self.call);
            self.saw(header.cpu);
        }
        Ok(look)
    }

    /// Gives back the slot of a message whose items were read in place.
    pub(crate) fn release(&mut self) {
        if let Some(seq) = self.held.take() {
            publish_consumed(&self.link, seq);
        }
    }

    /// Notes that the client is active on processor `cpu`.
    #[inline(always)]
    fn saw(&mut self, cpu: u16) {
        self.link.reset_packet_count();
        self.cpu = cpu;
        self.idle = 0;
        self.false_rings = 0;
    }

    #[inline(never)]
    fn take_slot(&mut self, tag: u64, incoming: &mut Incoming) -> Result<LaneEvent, Reason> {
        let header = header(tag, self.link.region.slot(self.seq))?;
        let is_request = matches!(header.kind, Kind::Call | Kind::Send);
        let look = match header.kind {
            Kind::Chunk if self.assembly.is_some() => self.take_chunk(incoming)?,
            Kind::Abandon => {
                let Some(assembly) = self.assembly.take() else { return Err(Reason::BadHeader) };
                if assembly.header.kind == Kind::Call {
                    self.link.end_call(assembly.header.line);
                }
                if assembly.header.fds > 0 {
                    // The abandoned request's descriptors came before it and are dropped.
                    drop(self.link.take_fds(assembly.header.seq));
                }
                LaneEvent::Progress
            }
            Kind::More if self.assembly.is_none() => {
                if !send_more(&self.link, header.line, header.seq) {
                    return Err(Reason::BadLine);
                }
                LaneEvent::Progress
            }
            _ if is_request && self.assembly.is_none() => self.take_request(header, incoming)?,
            _ => return Err(Reason::BadHeader),
        };
        if look == LaneEvent::Nothing {
            return Ok(look);
        }
        if look == LaneEvent::Message && incoming.has_items_in_place() {
            self.held = Some(self.seq);
        } else {
            publish_consumed(&self.link, self.seq);
        }
        self.saw(header.cpu);
        self.seq = next_seq(self.seq);
        if self.is_first_round && self.seq.0 > self.link.region.layout.slots {
            self.is_first_round = false;
        }
        Ok(look)
    }

    fn take_request(
        &mut self,
        header: Header,
        incoming: &mut Incoming,
    ) -> Result<LaneEvent, Reason> {
        let is_call = header.kind == Kind::Call;
        let is_here = (header.line == CALL_LINE) == header.seq.is_direct();
        if is_call {
            let begun = match is_here {
                true => self.link.begin_call(header.line, header.seq),
                false => CallStart::No,
            };
            match begun {
                CallStart::Yes => {}
                CallStart::Later => return Ok(LaneEvent::Nothing),
                CallStart::No => return Err(Reason::BadLine),
            }
        }
        if header.flags == 0 {
            incoming.load_inline(header, self.link.region.request(header.seq));
            return Ok(LaneEvent::Message);
        }
        if header.flags == LONG | BY_REFERENCE {
            return self.take_local(header, incoming);
        }
        if header.flags != LONG {
            return Err(Reason::BadHeader);
        }
        self.take_long(header, incoming)
    }

    fn take_long(&mut self, header: Header, incoming: &mut Incoming) -> Result<LaneEvent, Reason> {
        let link = &self.link;
        let mut words = [0; 5];
        link.region.request(header.seq).copy_out(&mut words);
        let sizes = StreamSizes { total: words[1], body_len: words[2] };
        let total = sizes.total;
        if total > link.request_max {
            return Err(Reason::BadLength);
        }
        let area = link.region.request_area(header.seq);
        let first = piece(area, words[3], words[4], total).ok_or(Reason::BadLength)?;
        if total == first.len() as u64 {
            let loaded = if link.items_in_place {
                let place = Extent { at: words[3] as usize, len: first.len() };
                incoming.load_in_place(header, area, place, sizes)
            } else {
                incoming.load_area(header, first, sizes, false)
            };
            return loaded.map(|()| LaneEvent::Message).ok_or(Reason::BadLength);
        }
        if header.seq.is_direct() {
            // Pieces come in slots only.
            return Err(Reason::BadLength);
        }
        let words = usize::try_from(total.div_ceil(8)).map_err(|_| Reason::BadLength)?;
        // The buffer is reused from message to message, so only the missing words are allocated and
        // cleared.
        let mut stream = core::mem::take(&mut incoming.spare);
        if stream.try_reserve_exact(words.saturating_sub(stream.len())).is_err() {
            return Err(Reason::NoResources);
        }
        if stream.len() < words {
            stream.resize(words, 0);
        }
        let filled = first.copy_to(bytes_of_mut(&mut stream));
        self.assembly = Some(Assembly { header, sizes, stream, filled });
        Ok(LaneEvent::Progress)
    }

    fn take_chunk(&mut self, incoming: &mut Incoming) -> Result<LaneEvent, Reason> {
        fault::point("server.piece");
        let Some(mut assembly) = self.assembly.take() else { return Err(Reason::BadHeader) };
        let total = assembly.sizes.total as usize;
        let mut words = [0; 3];
        self.link.region.slot(self.seq).copy_out(&mut words);
        let area = self.link.region.request_area(self.seq);
        let rest = &mut bytes_of_mut(&mut assembly.stream)[assembly.filled..total];
        let part = piece(area, words[1], words[2], rest.len() as u64).ok_or(Reason::BadLength)?;
        assembly.filled += part.copy_to(rest);
        if assembly.filled < total {
            self.assembly = Some(assembly);
            return Ok(LaneEvent::Progress);
        }
        let loaded = incoming.load_stream(assembly.header, &mut assembly.stream, assembly.sizes);
        // The buffer of the message before is kept for the next message in pieces.
        incoming.spare = assembly.stream;
        loaded.map(|()| LaneEvent::Message).ok_or(Reason::BadLength)
    }

    fn take_local(&mut self, header: Header, incoming: &mut Incoming) -> Result<LaneEvent, Reason> {
        let mut local = lock(&self.link.local);
        let request = local.request.take_if(|request| request.seq == header.seq);
        let Some(LocalRequest { body, items, .. }) = request else {
            return Err(Reason::BadHeader);
        };
        if header.kind != Kind::Call || header.grants > 0 {
            return Err(Reason::BadHeader);
        }
        local.is_lent = true;
        drop(local);
        // SAFETY: a caller of this address space lent these until it has its answer; the token
        // for that answer can only be had by giving up the view of the request.
        unsafe {
            let items: Vec<&[u8]> = items.into_iter().map(|item| &*item).collect();
            incoming.load_local(header, &*body, &items);
        }
        Ok(LaneEvent::Message)
    }
}

/// Returns the part of an area with the next piece of a message of which `left` bytes are missing;
/// `None` if the piece is empty or longer than that. A length of 0 stands for the largest possible
/// length.
fn piece(area: Span<'_>, offset: u64, len: u64, left: u64) -> Option<Span<'_>> {
    let len = if len == 0 { left.min(area.len() as u64) } else { len };
    let part = area.part(usize::try_from(offset).ok()?, usize::try_from(len).ok()?)?;
    (len <= left && len > 0).then_some(part)
}

/// Returns the header in `line`, whose tag was just loaded.
#[inline(always)]
fn header(tag: u64, line: &Line) -> Result<Header, Reason> {
    let mut meta = [0];
    line.copy_out(&mut meta);
    Header::unpack(tag, meta[0]).ok_or(Reason::BadHeader)
}

/// Checks that a line has room for the words that a lane copies.
const _: () = assert!(INLINE_WORDS + 2 == sojourn_shm::LINE_WORDS);
