//! Reading one client's requests: the receiving half of the request ring.
//!
//! # Theory of operation
//! Requests come in slots in order, each with the next sequence number. A lane looks at the tag of
//! the slot that is next. Either it still carries what was there before (nothing new), or the next
//! number (a request), or something else: then the client breaks the rules and is disconnected. A
//! request is copied out of the slot and the slot is given back, before anyone looks at its content.
//! Requests larger than an area come in several slots and are put together here, while other lanes
//! are served: a lane never waits. Not here: which lane is looked at when; see `server`.

use crate::layout::{BY_REFERENCE, Header, INLINE_WORDS, Kind, LONG, tag_seq};
use crate::link::{Link, LocalRequest, lock};
use crate::message::{Incoming, bytes_of_mut};
use crate::reason::Reason;
use crate::reply::{publish_consumed, send_more};
use sojourn_shm::Ordering;
use std::sync::Arc;

/// A message of which only some pieces have come.
#[derive(Debug)]
struct Assembly {
    header: Header,
    total: u64,
    body_len: u64,
    stream: Vec<u64>,
    filled: usize,
}

/// What a look at a lane gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing new.
    Nothing,
    /// Something was taken, but no whole message yet.
    Progress,
    /// A message lies in the [`Incoming`].
    Message,
}

/// One client, as the thread that serves it sees it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) link: Arc<Link>,
    /// A spare reference for the next token, so that counting it costs nothing.
    pub(crate) spare: Option<Arc<Link>>,
    /// Sequence number expected next; the first is 1.
    seq: u32,
    /// Tag of an empty slot has this number: none in the first round.
    is_first_round: bool,
    assembly: Option<Assembly>,
    /// Processor the client was last seen on.
    pub(crate) cpu: u16,
    /// Times the thread went to sleep since this lane had anything.
    pub(crate) idle: u32,
    /// Times this lane woke the thread for nothing, in a row.
    pub(crate) false_rings: u32,
}

impl Lane {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self {
            spare: Some(Arc::clone(&link)),
            link,
            seq: 1,
            is_first_round: true,
            assembly: None,
            cpu: 0,
            idle: 0,
            false_rings: 0,
        }
    }

    /// A reference to the link for a token.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> Arc<Link> {
        self.spare.take().unwrap_or_else(|| Arc::clone(&self.link))
    }

    /// Whether there is something new in the region: two loads.
    #[inline(always)]
    pub(crate) fn has_something(&self) -> bool {
        tag_seq(self.link.region.request(self.seq.wrapping_sub(1)).tag()) == self.seq
            || self.link.region.to_server().load(Ordering::Relaxed) != 0
    }

    /// Takes what the next slot holds, if anything.
    ///
    /// # Errors
    /// The rule that the client broke.
    #[inline(always)]
    pub(crate) fn look(&mut self, incoming: &mut Incoming) -> Result<Look, Reason> {
        let tag = self.link.region.request(self.seq.wrapping_sub(1)).tag();
        if tag_seq(tag) != self.seq {
            return self.check_old(tag).map(|()| Look::Nothing);
        }
        self.take(tag, incoming)
    }

    /// What lies in a slot that has not been written again.
    #[inline(always)]
    fn check_old(&self, tag: u64) -> Result<(), Reason> {
        let old = self.seq.wrapping_sub(self.link.region.layout.slots);
        let is_old = if self.is_first_round { tag == 0 } else { tag_seq(tag) == old };
        if is_old { Ok(()) } else { Err(Reason::BadSequence) }
    }

    #[inline(always)]
    fn take(&mut self, tag: u64, incoming: &mut Incoming) -> Result<Look, Reason> {
        let link = &self.link;
        let line = link.region.request(self.seq.wrapping_sub(1));
        let mut meta = [0];
        line.copy_out(&mut meta);
        let header = Header::unpack(tag, meta[0]).ok_or(Reason::BadHeader)?;
        let is_call = header.kind == Kind::Call;
        if is_call && self.assembly.is_none() && header.flags == 0 {
            incoming.load_inline(header, line);
            if !link.begin_call(header.line, header.seq) {
                return Err(Reason::BadLine);
            }
            self.advance(header.cpu, false);
            return Ok(Look::Message);
        }
        self.take_rare(header, incoming)
    }

    #[inline(always)]
    fn advance(&mut self, cpu: u16, may_wait: bool) {
        publish_consumed(&self.link, self.seq, may_wait);
        self.link.forgive();
        self.cpu = cpu;
        self.idle = 0;
        self.false_rings = 0;
        self.seq = self.seq.wrapping_add(1);
        if self.is_first_round && self.seq > self.link.region.layout.slots {
            self.is_first_round = false;
        }
    }

    #[inline(never)]
    fn take_rare(&mut self, header: Header, incoming: &mut Incoming) -> Result<Look, Reason> {
        let is_request = matches!(header.kind, Kind::Call | Kind::Send);
        let look = match header.kind {
            Kind::Chunk if self.assembly.is_some() => self.take_chunk(incoming)?,
            Kind::Abandon => {
                let Some(assembly) = self.assembly.take() else { return Err(Reason::BadHeader) };
                if assembly.header.kind == Kind::Call {
                    self.link.end_call(assembly.header.line);
                }
                Look::Progress
            }
            Kind::More if self.assembly.is_none() => {
                if !send_more(&self.link, header.line, header.seq) {
                    return Err(Reason::BadLine);
                }
                Look::Progress
            }
            _ if is_request && self.assembly.is_none() => self.take_request(header, incoming)?,
            _ => return Err(Reason::BadHeader),
        };
        self.advance(header.cpu, true);
        Ok(look)
    }

    fn take_request(&mut self, header: Header, incoming: &mut Incoming) -> Result<Look, Reason> {
        if header.kind == Kind::Call && !self.link.begin_call(header.line, header.seq) {
            return Err(Reason::BadLine);
        }
        if header.flags == 0 {
            incoming.load_inline(header, self.link.region.request(header.seq.wrapping_sub(1)));
            return Ok(Look::Message);
        }
        if header.flags == LONG | BY_REFERENCE {
            return self.take_local(header, incoming);
        }
        if header.flags != LONG {
            return Err(Reason::BadHeader);
        }
        self.take_long(header, incoming)
    }

    fn take_long(&mut self, header: Header, incoming: &mut Incoming) -> Result<Look, Reason> {
        let link = &self.link;
        let number = header.seq.wrapping_sub(1);
        let mut words = [0; 3];
        link.region.request(number).copy_out(&mut words);
        let (total, body_len) = (words[1], words[2]);
        if total > link.request_max {
            return Err(Reason::BadLength);
        }
        let area = link.region.request_area(number);
        if total <= area.len() as u64 {
            let sizes = (total, body_len);
            incoming.load_area(header, area, sizes, false).ok_or(Reason::BadLength)?;
            return Ok(Look::Message);
        }
        let words = usize::try_from(total.div_ceil(8)).map_err(|_| Reason::BadLength)?;
        let mut stream = Vec::new();
        if stream.try_reserve_exact(words).is_err() {
            return Err(Reason::NoResources);
        }
        stream.resize(words, 0);
        let filled = area.copy_to(bytes_of_mut(&mut stream));
        self.assembly = Some(Assembly { header, total, body_len, stream, filled });
        Ok(Look::Progress)
    }

    fn take_chunk(&mut self, incoming: &mut Incoming) -> Result<Look, Reason> {
        let Some(mut assembly) = self.assembly.take() else { return Err(Reason::BadHeader) };
        let total = assembly.total as usize;
        let area = self.link.region.request_area(self.seq.wrapping_sub(1));
        let rest = &mut bytes_of_mut(&mut assembly.stream)[assembly.filled..total];
        assembly.filled += area.copy_to(rest);
        if assembly.filled < total {
            self.assembly = Some(assembly);
            return Ok(Look::Progress);
        }
        let sizes = (assembly.total, assembly.body_len);
        incoming
            .load_stream(assembly.header, &mut assembly.stream, sizes)
            .ok_or(Reason::BadLength)?;
        Ok(Look::Message)
    }

    fn take_local(&mut self, header: Header, incoming: &mut Incoming) -> Result<Look, Reason> {
        let request = lock(&self.link.local).request.take();
        let Some(LocalRequest { seq, body, items }) = request else {
            return Err(Reason::BadHeader);
        };
        if seq != header.seq || header.kind != Kind::Call {
            return Err(Reason::BadHeader);
        }
        // SAFETY: a caller of this address space lent these until it has its answer; the token
        // for that answer can only be had by giving up the view of the request.
        unsafe {
            let slice = |(start, len)| core::slice::from_raw_parts::<u8>(start, len);
            let items: Vec<&[u8]> = items.into_iter().map(slice).collect();
            incoming.load_local(header, slice(body), &items);
        }
        Ok(Look::Message)
    }
}

/// Words of a line that a lane copies at most; a check that the line is long enough.
const _: () = assert!(INLINE_WORDS + 2 == sojourn_shm::LINE_WORDS);
