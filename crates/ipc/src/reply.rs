//! Answering a call: now, later, or from another thread.
//!
//! A [`ReplyToken`] is the right to answer one call, once. [`ReplyToken::start`] returns a draft
//! whose encoder writes to the memory from which the client reads; [`ReplyDraft::finish`] makes it
//! a [`ReadyReply`], which is published by [`ReadyReply::send`] or together with the wait for the
//! next request ([`crate::Server::reply_wait`]). A token that is dropped without an answer answers
//! with fault `Dropped`, so no caller waits for ever.

use crate::fault;
use crate::layout::{BY_REFERENCE, CPU_SHIFT, Header, INLINE_MAX, INLINE_WORDS, Kind, LONG, Seq};
use crate::link::{Answer, ClientLink, LocalReply, LongReply};
use crate::lock::lock;
use crate::message::{bytes_of, bytes_of_mut};
use crate::rt::gather::{Gather, TABLE_LEN};
use crate::rt::{ClientId, Encoder, Fault, Gone, Writer};
use sojourn_shm::ring;
use std::sync::Arc;

/// The right to answer one call, once.
#[derive(Debug)]
pub struct ReplyToken {
    /// `None` once answered.
    link: Option<Arc<ClientLink>>,
    line: u8,
    seq: Seq,
}

impl ReplyToken {
    pub(crate) fn new(link: Arc<ClientLink>, line: u8, seq: Seq) -> Self {
        Self { link: Some(link), line, seq }
    }

    /// Returns the token of call `seq` on `line`, if that call is outstanding and unclaimed: for
    /// the C interface, whose tokens are numbers. Otherwise the link is given back.
    #[inline]
    pub(crate) fn claim(
        link: Arc<ClientLink>,
        line: u8,
        seq: Seq,
    ) -> Result<Self, Arc<ClientLink>> {
        if link.claim_call(line, seq) { Ok(Self::new(link, line, seq)) } else { Err(link) }
    }

    /// Completes an answer that is only a body of `body_len` bytes in the line's words.
    #[inline]
    pub(crate) fn short(mut self, body_len: usize) -> ReadyReply {
        let form = Form::Inline(body_len.min(INLINE_MAX) as u8, 0);
        ReadyReply::new(self.link.take(), self.line, self.seq, &form)
    }

    /// Continues an answer whose body has been written at [`place`].
    #[inline]
    pub(crate) fn resume<'d>(self, place: BodyStorage, body_len: usize) -> ReplyDraft<'d> {
        // SAFETY: no bytes at all, at an aligned address.
        let mut encoder = unsafe { Encoder::from_raw(core::ptr::dangling_mut::<u64>().cast(), 0) };
        if let Some(line) = self.link.as_ref().and_then(|link| link.lines.get(self.line as usize)) {
            // SAFETY: this token alone may touch the line's spare until its answer is published.
            encoder.lend(unsafe { (*line.spare.get()).take() });
        }
        ReplyDraft { token: self, place, body_len, encoder }
    }

    /// Creates the token of a request that wants no answer.
    pub(crate) fn nobody() -> Self {
        Self { link: None, line: 0, seq: Seq(0) }
    }

    /// Returns the client that made the call; `None` for a request that wants no answer.
    pub fn client(&self) -> Option<ClientId> {
        self.link.as_ref().map(|link| link.id)
    }

    /// Begins an answer whose body has `body_len` bytes.
    #[inline]
    pub fn start<'d>(self, body_len: usize) -> ReplyDraft<'d> {
        let (place, encoder) = match &self.link {
            Some(link) => {
                let BodyPlace { storage, body } = place(link, self.line, body_len);
                // SAFETY: `body_len` bytes that live as long as the link, which the draft's token
                // keeps, or as the place; this token alone may touch them (see `ReplyLine`).
                let mut encoder = unsafe { Encoder::from_raw(body, body_len) };
                // SAFETY: this token alone may touch the line's spare until its answer is
                // published.
                encoder.lend(unsafe { (*link.lines[self.line as usize].spare.get()).take() });
                (storage, encoder)
            }
            // SAFETY: no bytes at all, at an aligned address.
            None => (BodyStorage::Inline, unsafe {
                Encoder::from_raw(core::ptr::dangling_mut::<u64>().cast(), 0)
            }),
        };
        ReplyDraft { token: self, place, body_len, encoder }
    }

    /// Completes an answer that is a fault.
    pub fn fault(mut self, fault: Fault) -> ReadyReply {
        ReadyReply::new(self.link.take(), self.line, self.seq, &Form::Fault(fault))
    }
}

impl Drop for ReplyToken {
    fn drop(&mut self) {
        // A disconnected client gets the reason of the disconnection instead of this fault.
        if let Some(link) = self.link.take().filter(|link| link.ended().is_none()) {
            let form = Form::Fault(Fault::DROPPED);
            let _ = ReadyReply::new(Some(link), self.line, self.seq, &form).send();
        }
    }
}

/// The place where the body of an answer is built.
#[derive(Debug)]
pub(crate) enum BodyStorage {
    /// The reply line's private words, then the line.
    Inline,
    /// The reply line's area.
    Area,
    /// Private memory, for a body larger than the area or for a client in this address space.
    Own(Vec<u64>),
}

/// The place for a body.
#[derive(Debug)]
pub(crate) struct BodyPlace {
    pub(crate) storage: BodyStorage,
    /// The first byte, at an address that is a multiple of 8.
    pub(crate) body: *mut u8,
}

/// Returns the place for the body of an answer on `line`. It is valid as long as the link lives and
/// the call is outstanding, or, for private memory, as long as the storage is kept.
#[inline]
pub(crate) fn place(link: &Arc<ClientLink>, line: u8, body_len: usize) -> BodyPlace {
    if body_len <= INLINE_MAX {
        let body = link.lines[line as usize].words.get().cast::<u8>();
        return BodyPlace { storage: BodyStorage::Inline, body };
    }
    long_place(link, line, body_len)
}

#[inline(never)]
fn long_place(link: &Arc<ClientLink>, line: u8, body_len: usize) -> BodyPlace {
    let area = link.region.reply_area(line);
    if !link.same_space
        && let Some(body) = area.part(TABLE_LEN, body_len)
    {
        return BodyPlace { storage: BodyStorage::Area, body: body.as_ptr() };
    }
    // A vector's memory keeps its address when the vector is moved.
    let mut own = vec![0; (TABLE_LEN + body_len).div_ceil(8)];
    let body = bytes_of_mut(&mut own)[TABLE_LEN..].as_mut_ptr();
    BodyPlace { storage: BodyStorage::Own(own), body }
}

/// An answer under construction.
#[derive(Debug)]
pub struct ReplyDraft<'d> {
    token: ReplyToken,
    place: BodyStorage,
    body_len: usize,
    encoder: Encoder<'d>,
}

impl<'d> ReplyDraft<'d> {
    /// Returns the encoder, which writes the body and takes items and descriptors.
    #[inline]
    pub fn encoder(&mut self) -> Writer<'_, 'd> {
        self.encoder.writer()
    }

    /// Completes the answer as a fault instead.
    pub fn fault(self, fault: Fault) -> ReadyReply {
        self.token.fault(fault)
    }

    /// Completes the answer, which the client does not see before it is sent.
    #[inline]
    pub fn finish(mut self) -> ReadyReply {
        let (line, seq) = (self.token.line, self.token.seq);
        let Some(link) = self.token.link.take() else {
            return ReadyReply { link: None, line };
        };
        let is_body_only = self.encoder.is_body_only() && matches!(self.place, BodyStorage::Inline);
        let form = match is_body_only {
            true => Form::Inline(self.body_len as u8, 0),
            false => self.form(&link, seq),
        };
        // SAFETY: this token alone may touch the line's spare until its answer is published.
        unsafe { *link.lines[line as usize].spare.get() = self.encoder.take_back() };
        ReadyReply::new(Some(link), line, seq, &form)
    }

    #[inline(never)]
    fn form(&mut self, link: &Arc<ClientLink>, seq: Seq) -> Form {
        let fds = self.encoder.fds().len();
        if fds > 0 && !link.send_fds(seq, self.encoder.fds()) {
            return Form::Fault(Fault::NO_RESOURCES);
        }
        if self.encoder.items().is_empty() && matches!(self.place, BodyStorage::Inline) {
            return Form::Inline(self.body_len as u8, fds as u8);
        }
        self.long_form(link, seq)
    }

    #[inline(never)]
    fn long_form(&mut self, link: &Arc<ClientLink>, seq: Seq) -> Form {
        let line = self.token.line;
        let own = core::mem::replace(&mut self.place, BodyStorage::Inline);
        let body: Option<&[u8]> = match &own {
            BodyStorage::Inline => {
                // SAFETY: as in `place`: this token alone may touch the words.
                let words = unsafe { &*link.lines[line as usize].words.get() };
                bytes_of(words).get(..self.body_len)
            }
            BodyStorage::Area => None,
            BodyStorage::Own(own) => Some(&bytes_of(own)[TABLE_LEN..TABLE_LEN + self.body_len]),
        };
        let items = self.encoder.items();
        let Some(gather) = Gather::new(body, self.body_len, items, &[]) else {
            return Form::Fault(Fault::TOO_LARGE);
        };
        let total = gather.total();
        if total > link.reply_max {
            return Form::Fault(Fault::TOO_LARGE);
        }
        let long = Long {
            total,
            body_len: self.body_len as u64,
            items: items.len() as u8,
            fds: self.encoder.fds().len() as u8,
            flags: if link.same_space { LONG | BY_REFERENCE } else { LONG },
        };
        if link.same_space {
            let table = *gather.table();
            let stream = match own {
                BodyStorage::Own(mut own) if long.items == 0 => {
                    bytes_of_mut(&mut own)[..TABLE_LEN].copy_from_slice(&table);
                    own
                }
                _ => {
                    let mut stream = vec![0; (total as usize).div_ceil(8)];
                    gather.copy_private(bytes_of_mut(&mut stream));
                    stream
                }
            };
            lock(&link.local).replies.push(LocalReply { seq, stream });
        } else {
            send_first_piece(link, line, &gather);
        }
        Form::Long(long)
    }
}

/// Copies as much of an answer as fits into the line's area; the link keeps the whole for the
/// pieces that the client asks for.
fn send_first_piece(link: &ClientLink, line: u8, gather: &Gather<'_>) {
    let sent = gather.copy(0, link.region.reply_area(line));
    if (sent as u64) < gather.total() {
        let mut stream = vec![0; gather.total() as usize];
        gather.copy_private(&mut stream);
        let mut replies = lock(&link.long_replies);
        // The client will not fetch the rest of an earlier answer on this line any more.
        replies.retain(|reply| reply.line != line);
        replies.push(LongReply { line, stream, sent });
    }
}

#[derive(Clone, Copy, Debug)]
struct Long {
    total: u64,
    body_len: u64,
    items: u8,
    fds: u8,
    flags: u8,
}

#[derive(Debug)]
enum Form {
    /// Bytes in the line's private words, descriptors.
    Inline(u8, u8),
    /// Already in the area, or with the link.
    Long(Long),
    Fault(Fault),
}

/// A complete answer that is not published yet. It lies in the reply line's private part, so this
/// value has only two words.
#[derive(Debug)]
pub struct ReadyReply {
    link: Option<Arc<ClientLink>>,
    line: u8,
}

impl ReadyReply {
    /// Completes the answer to call `seq`, except for the current processor's number.
    #[inline]
    fn new(link: Option<Arc<ClientLink>>, line: u8, seq: Seq, form: &Form) -> Self {
        let Some(link) = link else { return Self { link: None, line } };
        let mut header = Header {
            seq,
            op: 0,
            kind: Kind::Result,
            flags: 0,
            len: 0,
            line,
            fds: 0,
            items: 0,
            cpu: 0,
            grants: 0,
            after: 0,
        };
        let own = &link.lines[line as usize];
        // SAFETY: this token, or the answer made of it, alone may touch the line's private part.
        let (words, answer) = unsafe { (&mut *own.words.get(), &mut *own.answer.get()) };
        let count = match form {
            Form::Inline(len, fds) => {
                (header.len, header.fds) = (*len, *fds);
                usize::from(*len).div_ceil(8).min(INLINE_WORDS)
            }
            Form::Long(long) => {
                (header.items, header.fds, header.flags) = (long.items, long.fds, long.flags);
                (words[0], words[1]) = (long.total, long.body_len);
                2
            }
            Form::Fault(fault) => {
                header.kind = Kind::Fault;
                words[0] = u64::from(fault.0);
                1
            }
        };
        *answer = Answer { tag: header.tag(), meta: header.meta(), count };
        Self { link: Some(link), line }
    }

    /// Publishes the answer by a few stores, and wakes the client if it sleeps. Never waits.
    ///
    /// # Errors
    /// [`Gone`] if the client was gone before: nothing is published, so nobody has seen the answer.
    #[inline]
    pub fn send(self) -> Result<(), Gone> {
        self.send_and_return().map(drop)
    }

    /// Publishes like [`Self::send`] and returns the link, so that its reference count need not
    /// change.
    ///
    /// # Errors
    /// As [`Self::send`].
    #[inline]
    pub(crate) fn send_and_return(mut self) -> Result<Arc<ClientLink>, Gone> {
        let link = self.link.take().ok_or(Gone)?;
        // A look after the publication would tell nothing: a client may take its answer and go.
        if link.ended().is_some() {
            link.end_call(self.line);
            return Err(Gone);
        }
        publish(&link, self.line);
        Ok(link)
    }
}

/// Publishes the complete answer of a line.
#[inline]
fn publish(link: &ClientLink, line: u8) {
    let own = &link.lines[line as usize];
    // SAFETY: the answer's holder alone may touch the line's private part until `end_call` below.
    let (words, answer) = unsafe { (&*own.words.get(), *own.answer.get()) };
    let meta = answer.meta | u64::from(link.thread.cpu()) << CPU_SHIFT;
    fault::point("server.answer");
    link.begin_answer(line);
    link.region.reply(line).publish(answer.tag, meta, &words[..answer.count.min(INLINE_WORDS)]);
    link.end_call(line);
    link.ring_client();
}

impl Drop for ReadyReply {
    fn drop(&mut self) {
        // The answer was completed and not sent: a fault is sent so that the caller does not wait
        // for ever.
        if let Some(link) = self.link.take() {
            // SAFETY: as in `publish`.
            let seq = ring::tag_seq(unsafe { (*link.lines[self.line as usize].answer.get()).tag });
            let fault = Self::new(Some(link), self.line, seq, &Form::Fault(Fault::DROPPED));
            let _ = fault.send();
        }
    }
}

/// Publishes the next piece of a long answer, which the client requested by message `seq`. Returns
/// false if there is no such answer.
pub(crate) fn send_more(link: &ClientLink, line: u8, seq: Seq) -> bool {
    fault::point("server.more");
    let mut replies = lock(&link.long_replies);
    let Some(at) = replies.iter().position(|reply| reply.line == line) else { return false };
    let reply = &mut replies[at];
    let area = link.region.reply_area(line);
    let sent = area.copy_from(&reply.stream[reply.sent..]);
    reply.sent += sent;
    if reply.sent == reply.stream.len() {
        replies.swap_remove(at);
    }
    drop(replies);
    let header = Header {
        seq,
        op: 0,
        kind: Kind::Result,
        flags: LONG,
        len: 0,
        line,
        fds: 0,
        items: 0,
        cpu: link.thread.cpu(),
        grants: 0,
        after: 0,
    };
    link.region.reply(line).publish(header.tag(), header.meta(), &[]);
    link.ring_client();
    true
}

/// Publishes that the slots' requests up to number `count` have been taken, and wakes the client if
/// it waits for room.
#[inline]
pub(crate) fn publish_consumed(link: &ClientLink, count: Seq) {
    if ring::consume(link.region.consumed(), link.region.want(), count) {
        link.ring_client();
    }
}
