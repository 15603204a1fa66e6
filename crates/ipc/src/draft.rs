//! A request under construction, and its sending.
//!
//! The body is written to the memory from which the server reads it, if that is known beforehand:
//! the line's words (via private ones) or the area of the next slot. Only a body larger than an
//! area, or one written while no slot is free, is built in private memory. Not here: waiting for
//! the answer (`connection`).

use crate::connection::replies::Reply;
use crate::connection::{Connection, Pending, PiecePlace};
use crate::control::{Packet, Topic};
use crate::deadline::Deadline;
use crate::fault;
use crate::layout::{BY_REFERENCE, Header, INLINE_MAX, Kind, LONG, Seq, next_seq};
use crate::link::LocalRequest;
use crate::lock::lock;
use crate::message::{bytes_of, bytes_of_mut};
use crate::rt::gather::{Gather, TABLE_LEN};
use crate::rt::{CallError, Encoder, Writer};

/// The place where the body is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyStorage {
    Inline,
    /// In the area of the call line (`direct`) or of the next slot.
    Area {
        direct: bool,
    },
    Own,
}

impl BodyStorage {
    fn is_ours(self) -> bool {
        !matches!(self, Self::Area { .. })
    }
}

/// A request under construction. The values to which it refers live for `'d`.
#[derive(Debug)]
pub struct Draft<'c, 'd> {
    connection: &'c mut Connection,
    op: u16,
    body_len: usize,
    place: BodyStorage,
    encoder: Encoder<'d>,
}

impl Connection {
    /// Begins a request for operation `op` with a body of `body_len` bytes. Cannot fail: sending
    /// reports a body that is too large.
    #[inline]
    pub fn start<'d>(&mut self, op: u16, body_len: usize) -> Draft<'_, 'd> {
        Draft::new(self, op, body_len)
    }
}

impl<'c, 'd> Draft<'c, 'd> {
    #[inline]
    pub(crate) fn new(connection: &'c mut Connection, op: u16, body_len: usize) -> Self {
        let BodyPlace { storage: place, body } = place(connection, body_len);
        // SAFETY: `body_len` bytes, aligned to 8, that live as long as the connection (boxed words,
        // a vector not resized before the draft is done with, the mapped region), borrowed with it.
        let mut encoder = unsafe { Encoder::from_raw(body, body_len) };
        encoder.lend(connection.spare.take());
        Self { connection, op, body_len, place, encoder }
    }

    /// Creates a draft whose body has been written at [`place`], before any other message was sent.
    #[inline]
    pub(crate) fn resume(
        connection: &'c mut Connection,
        op: u16,
        body_len: usize,
        place: BodyStorage,
    ) -> Self {
        // SAFETY: no bytes at all, at an aligned address.
        let mut encoder = unsafe { Encoder::from_raw(core::ptr::dangling_mut::<u64>().cast(), 0) };
        encoder.lend(connection.spare.take());
        Self { connection, op, body_len, place, encoder }
    }

    /// Returns the encoder, which writes the body and takes items, descriptors and grants.
    #[inline]
    pub fn encoder(&mut self) -> Writer<'_, 'd> {
        self.encoder.writer()
    }

    /// Sends the request and waits for its answer.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline]
    pub fn call(mut self, deadline: Deadline) -> Result<Reply<'c>, CallError> {
        let pending = self.post(Kind::Call, deadline, deadline == Deadline::NEVER)?;
        self.connection.finish(pending, deadline)
    }

    /// Sends the request; [`Connection::finish`] waits for its answer. This call waits only for
    /// room.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn submit(mut self, deadline: Deadline) -> Result<Pending, CallError> {
        self.post(Kind::Call, deadline, false)
    }

    /// Sends a request that wants no answer. Waits only for room.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn send(mut self, deadline: Deadline) -> Result<(), CallError> {
        self.post(Kind::Send, deadline, false).map(drop)
    }

    /// Publishes the request. With `may_lend` the caller's own memory may be passed within one
    /// address space, since the caller waits until it has its answer.
    #[inline]
    fn post(
        &mut self,
        kind: Kind,
        deadline: Deadline,
        may_lend: bool,
    ) -> Result<Pending, CallError> {
        let is_body_only = self.place == BodyStorage::Inline && self.encoder.is_body_only();
        let posted = if kind == Kind::Call
            && is_body_only
            && let Some(pending) = self.connection.post_short(self.op, self.body_len)
        {
            Ok(pending)
        } else {
            self.post_rare(kind, deadline, may_lend)
        };
        self.connection.spare = self.encoder.take_back();
        posted
    }

    #[inline]
    fn publish_inline(&mut self, mut header: Header) -> Pending {
        header.op = self.op;
        header.len = self.body_len as u8;
        let count = self.body_len.div_ceil(8);
        self.connection.publish_words(&header, count);
        self.posted(header)
    }

    /// Waits for a free slot. An incomplete request is abandoned first.
    fn make_room(&mut self, deadline: Deadline) -> Result<(), CallError> {
        self.connection.wait_for_room(deadline)?;
        if self.connection.is_torn {
            let header = self.connection.next_header(Kind::Abandon, 0, false);
            self.connection.publish(&header, &[]);
            self.connection.is_torn = false;
            self.connection.wait_for_room(deadline)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn post_rare(
        &mut self,
        kind: Kind,
        deadline: Deadline,
        may_lend: bool,
    ) -> Result<Pending, CallError> {
        let is_call = kind == Kind::Call;
        let is_direct = is_call && self.fits_call_line(may_lend);
        if !is_direct {
            if matches!(self.place, BodyStorage::Area { direct: true }) {
                self.keep_own();
            }
            self.make_room(deadline)?;
        }
        let line = if is_call { self.connection.take_line(is_direct)? } else { 0 };
        let header = self.connection.next_header(kind, line, is_direct);
        let sent = self.post_parts(header, deadline, may_lend);
        if sent.is_err() && is_call {
            self.connection.free_line(line);
        }
        sent
    }

    /// Returns true if the call line is free and the request fits it in one piece.
    fn fits_call_line(&mut self, may_lend: bool) -> bool {
        let items: usize = self.encoder.items().iter().map(|item| item.len() + 8).sum();
        let total = TABLE_LEN.saturating_add(self.body_len + 8).saturating_add(items);
        let is_small = total <= self.connection.parts.region.layout.area
            && !(self.place == BodyStorage::Inline
                && self.connection.piece_len(total as u64).is_some());
        (is_small || may_lend && self.connection.link.is_some())
            && !self.connection.is_torn
            && !matches!(self.place, BodyStorage::Area { direct: false })
            && self.connection.is_call_line_free()
    }

    /// Copies a body from the call line's area into private memory.
    fn keep_own(&mut self) {
        let connection = &mut *self.connection;
        connection.own.clear();
        connection.own.resize(self.body_len.div_ceil(8), 0);
        if let Some(body) =
            connection.parts.region.request_area(Seq::DIRECT).part(TABLE_LEN, self.body_len)
        {
            body.copy_to(bytes_of_mut(&mut connection.own));
        }
        self.place = BodyStorage::Own;
    }

    fn post_parts(
        &mut self,
        mut header: Header,
        deadline: Deadline,
        may_lend: bool,
    ) -> Result<Pending, CallError> {
        let fds = self.encoder.fds();
        if !fds.is_empty() {
            // Descriptors without their message would be taken for the next message's, so the size
            // is checked first.
            let items = self.encoder.items();
            let total = Gather::new(None, self.body_len, items, &[]).map(|gather| gather.total());
            if total.is_none_or(|total| total > self.connection.parts.request_max) {
                return Err(CallError::TooLarge);
            }
            let packet = Packet::new(Topic::Descriptors, header.seq.0);
            self.connection.send_packet(packet, fds, deadline)?;
            fault::point("client.descriptors");
        }
        header.fds = fds.len() as u8;
        let has_parts = !self.encoder.items().is_empty() || !self.encoder.grants().is_empty();
        if self.place == BodyStorage::Inline && !has_parts {
            return Ok(self.publish_inline(header));
        }
        header.op = self.op;
        header.items = self.encoder.items().len() as u8;
        header.grants = self.encoder.grants().len() as u8;
        let may_lend = may_lend && header.grants == 0 && self.place.is_ours();
        if !(may_lend && self.lend(&mut header)) {
            header.flags = LONG;
            self.post_long(header, deadline)?;
        }
        Ok(self.posted(header))
    }

    #[inline]
    fn posted(&mut self, header: Header) -> Pending {
        if header.kind == Kind::Call {
            self.connection.set_call(header.line, header.seq);
        }
        Pending { line: header.line, seq: header.seq }
    }

    /// Passes body and items by reference within one address space.
    fn lend(&mut self, header: &mut Header) -> bool {
        let Some(link) = &self.connection.link else { return false };
        let body = match self.place {
            BodyStorage::Own => self.connection.own.as_ptr().cast(),
            _ => self.connection.words.as_ptr().cast(),
        };
        let body = core::ptr::slice_from_raw_parts(body, self.body_len);
        let items = self.encoder.items().iter().map(|item| core::ptr::from_ref(*item)).collect();
        let request = LocalRequest { seq: header.seq, body, items };
        lock(&link.local).request = Some(request);
        header.flags = LONG | BY_REFERENCE;
        self.connection.publish(header, &[]);
        true
    }

    fn post_long(&mut self, header: Header, deadline: Deadline) -> Result<(), CallError> {
        let connection = &mut *self.connection;
        // The buffers are taken out, so that the connection can be used while they are read.
        let own = core::mem::take(&mut connection.own);
        let words = *connection.words;
        let body = match self.place {
            BodyStorage::Inline => Some(&bytes_of(&words)[..self.body_len]),
            BodyStorage::Area { .. } => None,
            BodyStorage::Own => bytes_of(&own).get(..self.body_len),
        };
        let gather = Gather::new(body, self.body_len, self.encoder.items(), self.encoder.grants());
        let max = connection.parts.request_max;
        let result = match gather.filter(|gather| gather.total() <= max) {
            None => Err(CallError::TooLarge),
            Some(mut gather) => {
                gather.is_far = header.kind == Kind::Call && !connection.is_server_here();
                post_pieces(connection, header, &gather, self.body_len, deadline)
            }
        };
        connection.own = own;
        result
    }
}

/// Publishes a long message: the first piece with the header, the others as slots become free.
fn post_pieces(
    connection: &mut Connection,
    header: Header,
    gather: &Gather<'_>,
    body_len: usize,
    deadline: Deadline,
) -> Result<(), CallError> {
    let total = gather.total();
    // A server on another processor can copy one piece out while this side copies the next one in;
    // a server on this processor would only take turns.
    let overlaps = !connection.is_server_here();
    // One-way messages overlap with each other without being split.
    let may_split = header.kind == Kind::Call && gather.has_body() && !header.seq.is_direct();
    let piece_len = if may_split { connection.piece_len(total) } else { None };
    let PiecePlace { offset, area } = connection.piece_area(header.seq, piece_len);
    let mut sent = gather.copy(0, area) as u64;
    connection.publish_quietly(&header, &[total, body_len as u64, offset, sent]);
    if sent == total || overlaps {
        connection.ring_server();
    }
    while sent < total {
        fault::point("client.piece");
        if let Err(error) = connection.wait_for_room(deadline) {
            connection.is_torn = true;
            return Err(error);
        }
        let chunk = connection.next_header(Kind::Chunk, 0, false);
        let PiecePlace { offset, area } = connection.piece_area(chunk.seq, piece_len);
        let len = gather.copy(sent, area) as u64;
        connection.publish_quietly(&chunk, &[offset, len]);
        sent += len;
        if sent == total {
            connection.ring_server();
        }
    }
    Ok(())
}

/// The place for a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPlace {
    pub(crate) storage: BodyStorage,
    /// The first byte, at an address that is a multiple of 8.
    pub(crate) body: *mut u8,
}

/// Returns the place for a body of `body_len` bytes, valid until the next message is begun or sent.
#[inline]
pub(crate) fn place(connection: &mut Connection, body_len: usize) -> BodyPlace {
    if body_len <= INLINE_MAX {
        BodyPlace { storage: BodyStorage::Inline, body: connection.words.as_mut_ptr().cast::<u8>() }
    } else {
        long_place(connection, body_len)
    }
}

/// Returns the place for a body that does not fit a line: the area of the call line or of the next
/// slot, if one is free.
#[inline(never)]
fn long_place(connection: &mut Connection, body_len: usize) -> BodyPlace {
    if connection.link.is_none() && !connection.is_torn {
        let direct = connection.is_call_line_free();
        let seq = if direct { Seq::DIRECT } else { next_seq(connection.seq) };
        if (direct || connection.has_room())
            && let Some(body) = connection.parts.region.request_area(seq).part(TABLE_LEN, body_len)
        {
            return BodyPlace { storage: BodyStorage::Area { direct }, body: body.as_ptr() };
        }
    }
    connection.own.clear();
    connection.own.resize(body_len.div_ceil(8), 0);
    BodyPlace { storage: BodyStorage::Own, body: connection.own.as_mut_ptr().cast() }
}
