//! A request being put together, and its sending.
//!
//! The body is written where the server will read it, where that is known beforehand: in the line's
//! words (via private ones) or in the area of the next slot. Only a body larger than an area, or one
//! written while no slot is free, is put together in memory of our own. Not here: waiting for the
//! answer; see `connection`.

use crate::connection::{Connection, Pending, Reply};
use crate::control::{Packet, Topic};
use crate::deadline::Deadline;
use crate::gather::Gather;
use crate::layout::{BY_REFERENCE, Header, INLINE_MAX, INLINE_WORDS, Kind, LONG, TABLE_LEN};
use crate::link::{LocalRequest, lock};
use crate::message::bytes_of;
use crate::rt::{CallError, Encoder};

/// Where the body is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Inline,
    Area,
    Own,
}

/// A request being put together; what it refers to lives for `'d`.
#[derive(Debug)]
pub struct Draft<'c, 'd> {
    connection: &'c mut Connection,
    op: u16,
    body_len: usize,
    place: Place,
    encoder: Encoder<'d>,
}

impl<'c, 'd> Draft<'c, 'd> {
    #[inline]
    pub(crate) fn new(connection: &'c mut Connection, op: u16, body_len: usize) -> Self {
        let (place, body) = if body_len <= INLINE_MAX {
            (Place::Inline, connection.words.as_mut_ptr().cast::<u8>())
        } else {
            long_place(connection, body_len)
        };
        // SAFETY: `body_len` bytes, aligned to 8, that live as long as the connection (boxed words,
        // a vector not resized before the draft is done with, the mapped region), borrowed with it.
        let encoder = unsafe { Encoder::from_raw(body, body_len) };
        Self { connection, op, body_len, place, encoder }
    }

    /// Writes the body and takes items, descriptors and grants.
    #[inline]
    pub fn encoder(&mut self) -> &mut Encoder<'d> {
        &mut self.encoder
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

    /// Sends the request; [`Connection::finish`] waits for its answer. Waits itself only for room.
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
    /// address space, since the caller stays here until it has its answer.
    #[inline]
    fn post(
        &mut self,
        kind: Kind,
        deadline: Deadline,
        may_lend: bool,
    ) -> Result<Pending, CallError> {
        if self.connection.is_torn || !self.connection.has_room() {
            self.make_room(deadline)?;
        }
        let line = if kind == Kind::Call { self.connection.take_line()? } else { 0 };
        let mut header = self.connection.next_header(kind, line);
        header.op = self.op;
        let encoder = &self.encoder;
        let is_plain = self.place == Place::Inline
            && encoder.items().is_empty()
            && encoder.fds().is_empty()
            && encoder.grants().is_empty();
        let sent = if is_plain {
            self.publish_inline(header);
            Ok(())
        } else {
            self.post_rare(header, deadline, may_lend)
        };
        match sent {
            Ok(()) => self.connection.set_call(line, header.seq),
            Err(error) => {
                if kind == Kind::Call {
                    self.connection.free_line(line);
                }
                return Err(error);
            }
        }
        Ok(Pending { line, seq: header.seq })
    }

    #[inline]
    fn publish_inline(&mut self, mut header: Header) {
        header.len = self.body_len as u8;
        let count = self.body_len.div_ceil(8);
        let mut words = [0; INLINE_WORDS + 1];
        words[0] = header.meta();
        words[1..=count].copy_from_slice(&self.connection.words[..count]);
        self.connection.publish(&header, &words[..=count]);
    }

    #[inline(never)]
    fn make_room(&mut self, deadline: Deadline) -> Result<(), CallError> {
        self.connection.wait_for_room(deadline)?;
        if self.connection.is_torn {
            let header = self.connection.next_header(Kind::Abandon, 0);
            self.connection.publish(&header, &[header.meta()]);
            self.connection.is_torn = false;
            self.connection.wait_for_room(deadline)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn post_rare(
        &mut self,
        mut header: Header,
        deadline: Deadline,
        may_lend: bool,
    ) -> Result<(), CallError> {
        let fds = self.encoder.fds();
        if !fds.is_empty() {
            let packet = Packet::new(Topic::Descriptors, header.seq);
            self.connection.send_packet(packet, fds, deadline)?;
        }
        header.fds = fds.len() as u8;
        let has_parts = !self.encoder.items().is_empty() || !self.encoder.grants().is_empty();
        if self.place == Place::Inline && !has_parts {
            self.publish_inline(header);
            return Ok(());
        }
        header.items = self.encoder.items().len() as u8;
        header.grants = self.encoder.grants().len() as u8;
        if may_lend && header.grants == 0 && self.place != Place::Area && self.lend(&mut header) {
            return Ok(());
        }
        header.flags = LONG;
        self.post_long(header, deadline)
    }

    /// Passes body and items as they lie, within one address space.
    fn lend(&mut self, header: &mut Header) -> bool {
        let Some(link) = &self.connection.link else { return false };
        let body = match self.place {
            Place::Own => self.connection.own.as_ptr().cast(),
            _ => self.connection.words.as_ptr().cast(),
        };
        let items = self.encoder.items().iter().map(|item| (item.as_ptr(), item.len())).collect();
        let request = LocalRequest { seq: header.seq, body: (body, self.body_len), items };
        lock(&link.local).request = Some(request);
        header.flags = LONG | BY_REFERENCE;
        self.connection.publish(header, &[header.meta()]);
        true
    }

    fn post_long(&mut self, header: Header, deadline: Deadline) -> Result<(), CallError> {
        let connection = &mut *self.connection;
        // Taken out for the time being, so that the connection can be used while they are read.
        let own = core::mem::take(&mut connection.own);
        let words = *connection.words;
        let body = match self.place {
            Place::Inline => Some(&bytes_of(&words)[..self.body_len]),
            Place::Area => None,
            Place::Own => bytes_of(&own).get(..self.body_len),
        };
        let gather = Gather::new(body, self.body_len, self.encoder.items(), self.encoder.grants());
        let max = connection.parts.request_max;
        let result = match gather.filter(|gather| gather.total() <= max) {
            None => Err(CallError::TooLarge),
            Some(gather) => post_pieces(connection, header, &gather, self.body_len, deadline),
        };
        connection.own = own;
        result
    }
}

/// Publishes a long message: the first piece with its header, the others as slots become free.
fn post_pieces(
    connection: &mut Connection,
    header: Header,
    gather: &Gather<'_>,
    body_len: usize,
    deadline: Deadline,
) -> Result<(), CallError> {
    let mut sent = gather.copy(0, connection.parts.region.request_area(connection.seq)) as u64;
    connection.publish(&header, &[header.meta(), gather.total(), body_len as u64]);
    while sent < gather.total() {
        if let Err(error) = connection.wait_for_room(deadline) {
            connection.is_torn = true;
            return Err(error);
        }
        sent += gather.copy(sent, connection.parts.region.request_area(connection.seq)) as u64;
        let chunk = connection.next_header(Kind::Chunk, 0);
        connection.publish(&chunk, &[chunk.meta()]);
    }
    Ok(())
}

/// Where a body that does not fit a line goes: the area of the next slot, if that is free.
#[inline(never)]
fn long_place(connection: &mut Connection, body_len: usize) -> (Place, *mut u8) {
    let may_use_area = connection.link.is_none() && !connection.is_torn && connection.has_room();
    if may_use_area
        && let Some(body) =
            connection.parts.region.request_area(connection.seq).part(TABLE_LEN, body_len)
    {
        return (Place::Area, body.as_ptr());
    }
    connection.own.clear();
    connection.own.resize(body_len.div_ceil(8), 0);
    (Place::Own, connection.own.as_mut_ptr().cast())
}
