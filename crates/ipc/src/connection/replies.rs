//! Answers: their copies out of the region, and the caller's view of them.
//!
//! Not here: waiting for an answer (`waiting`).

use super::{Connection, Pending};
use crate::deadline::Deadline;
use crate::fault;
use crate::layout::{BY_REFERENCE, DIRECT, Header, Kind, LONG, Region, Seq, distance, is_answer};
use crate::lock::lock;
use crate::message::{StreamSizes, bytes_of_mut};
use crate::rt::Reason;
use crate::rt::{CallError, Decoder, Fault};
use rustix::fd::OwnedFd;

impl Connection {
    /// Waits for the answer to a submitted call.
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

    /// Waits until the answer to a submitted call has come, and leaves it for [`Self::finish`].
    /// Unlike there the call stays outstanding if the deadline passes.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline]
    pub fn await_answer(&mut self, pending: &Pending, deadline: Deadline) -> Result<(), CallError> {
        let Pending { line, seq } = *pending;
        self.wait(deadline, |region| is_answer(region.reply(line).tag(), seq))
    }

    /// Waits as [`Connection::await_answer`] does, but not beyond the moment at which `stop`
    /// returns true. Returns true if the answer has come. A thread that sleeps looks at `stop`
    /// again when a signal handler has run, or has stored 0 in [`Connection::bell`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn await_answer_unless(
        &mut self,
        pending: &Pending,
        deadline: Deadline,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, CallError> {
        let Pending { line, seq } = *pending;
        let has_come = |region: &Region| is_answer(region.reply(line).tag(), seq);
        self.wait(deadline, |region| has_come(region) || stop())?;
        Ok(has_come(&self.parts.region))
    }

    /// Copies the answer on `line` out of the region and frees the line.
    #[inline]
    pub(super) fn take_reply(
        &mut self,
        line: u8,
        seq: Seq,
        deadline: Deadline,
    ) -> Result<(), CallError> {
        if !seq.is_direct() && distance(self.consumed, seq) < DIRECT / 2 {
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
        let sizes = StreamSizes { total: words[1], body_len: words[2] };
        let taken = match (header.kind, header.flags) {
            (Kind::Fault, 0) => {
                self.free_line(header.line);
                // The server may have sent descriptors before it failed to answer; they are
                // dropped.
                self.drain();
                self.inbox.take(header.seq);
                return Err(CallError::Fault(Fault(words[1] as u32)));
            }
            (Kind::Result, LONG) if sizes.total <= region.layout.area as u64 => {
                let area = region.reply_area(line);
                self.incoming.load_area(header, area, sizes, true)
            }
            (Kind::Result, LONG) if sizes.total <= self.parts.reply_max => {
                if header.fds > 0 && self.ended.is_none() {
                    // The packets are read before the call's number is forgotten, so that its
                    // descriptors are kept.
                    self.drain();
                }
                let mut stream = self.fetch(header, sizes.total as usize, deadline)?;
                self.incoming.load_stream(header, &mut stream, sizes)
            }
            (Kind::Result, flags) if flags == LONG | BY_REFERENCE => {
                let stream = self.link.as_ref().and_then(|link| {
                    let replies = &mut lock(&link.local).replies;
                    let at = replies.iter().position(|reply| reply.seq == header.seq)?;
                    Some(replies.swap_remove(at).stream)
                });
                stream.and_then(|mut stream| self.incoming.load_stream(header, &mut stream, sizes))
            }
            _ => None,
        };
        taken.ok_or_else(|| self.end(Reason::BadLength))
    }

    /// Fetches an answer larger than its area, piece by piece.
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

    fn post_more(&mut self, line: u8, deadline: Deadline) -> Result<Seq, CallError> {
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
            // The list has room for as many descriptors as a header can announce.
            let _ = self.incoming.fds.push(fd);
        }
        Ok(())
    }
}

/// An answer in private memory, except for items, which may still lie in the region.
#[derive(Debug)]
pub struct Reply<'c> {
    pub(super) connection: &'c mut Connection,
}

impl Reply<'_> {
    /// Returns the body, aligned to 8.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.connection.incoming.body()
    }

    /// Returns the length of string item `index` in bytes.
    pub fn item_len(&self, index: usize) -> Option<usize> {
        self.connection.incoming.item(index).map(|item| item.len())
    }

    /// Copies string item `index` to `target` and returns the number of bytes: the shorter length.
    pub fn item_into(&self, index: usize, target: &mut [u8]) -> Option<usize> {
        self.connection.incoming.item(index).map(|item| item.copy_into(target))
    }

    /// Returns a copy of string item `index`.
    pub fn item(&self, index: usize) -> Option<Vec<u8>> {
        self.connection.incoming.item(index).map(|item| item.to_vec())
    }

    /// Takes descriptor `index`; `None` if it was taken before.
    pub fn take_fd(&mut self, index: usize) -> Option<OwnedFd> {
        self.connection.incoming.fds.take(index)
    }

    /// Returns a decoder of the whole answer, for generated stubs.
    #[inline]
    pub fn decoder(&mut self) -> Decoder<'_> {
        self.connection.incoming.decoder()
    }
}
