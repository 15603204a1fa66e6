//! The program's calls on a connection: write, read, close, and queries of the queues.
//!
//! Not here: blocking, readiness notification, and errors that are delivered once; they are the
//! embedder's. Read `connection` first.

use super::connection::{Connection, ReceiveEnd};
use crate::position::{self, Span};
use crate::record::{CloseReason, TcpState};
use sojourn_wire::tcp::SeqNum;

impl Connection {
    /// Copies bytes to be sent from several slices in order, as many as there is room for. `more`
    /// announces that further bytes follow at once (`MSG_MORE`), so that a segment that is not full
    /// may wait for them.
    ///
    /// Returns the number of bytes taken: 0 if there is no room, or if this direction is closed
    /// (see [`Connection::can_send`]).
    pub fn send(&mut self, parts: &[&[u8]], more: bool) -> usize {
        if !self.can_send() {
            return 0;
        }
        let mut room = self.send_room();
        let before = room;
        let Some(ring) = &mut self.snd.ring else { return 0 };
        for part in parts {
            let taken = part.len().min(room);
            ring.write(self.snd.end, &part[..taken]);
            self.snd.end += taken as u64;
            room -= taken;
            if taken < part.len() {
                break;
            }
        }
        self.snd.more = more;
        before - room
    }

    /// Notes that the program has written `length` more bytes, which the embedder keeps until they
    /// are acknowledged (`Limits::send_elsewhere`). The embedder finds the payload of a
    /// [`super::Transmit`] by its `offset`. Returns the number of bytes taken, like
    /// [`Connection::send`].
    pub fn send_elsewhere(&mut self, length: usize, more: bool) -> usize {
        if self.snd.ring.is_some() || !self.can_send() {
            return 0;
        }
        let taken = length.min(self.send_room());
        self.snd.end += taken as u64;
        self.snd.more = more;
        taken
    }

    /// Returns true if the program may write; otherwise a write fails with `EPIPE` or the error of
    /// the connection.
    pub fn can_send(&self) -> bool {
        matches!(self.state, TcpState::Established | TcpState::CloseWait) && !self.exported
    }

    /// Returns the number of bytes that [`Connection::send`] would take now.
    pub fn send_room(&self) -> usize {
        if !self.can_send() {
            return 0;
        }
        self.snd.limit.saturating_sub(self.snd.queued()) as usize
    }

    /// Returns true if `poll` reports the socket writable (`sk_stream_is_writeable`,
    /// `TCP_NOTSENT_LOWAT`): a third of the buffer is free and not too many bytes wait unsent. Also
    /// returns true if a write would fail at once.
    pub fn is_writable(&self) -> bool {
        if !self.can_send() {
            return true;
        }
        let queued = self.snd.queued();
        let free = self.snd.limit.saturating_sub(queued);
        free > 0
            && free >= queued / 2
            && self.snd.unsent() < u64::from(self.options.notsent_lowat).max(1)
    }

    /// Moves received bytes into the slices, in order, and returns their number; 0 if there are
    /// none, see [`Connection::receive_end`].
    pub fn recv(&mut self, parts: &mut [&mut [u8]]) -> usize {
        let count = self.peek(0, parts);
        self.consume(count);
        count
    }

    /// Copies received bytes into the slices, beginning `offset` bytes after the next one, without
    /// removing them. Returns their number.
    pub fn peek(&self, offset: usize, parts: &mut [&mut [u8]]) -> usize {
        let mut rest = self.rcv.readable();
        rest.start = (rest.start + offset as u64).min(rest.end);
        let before = rest.len();
        for part in parts {
            let taken = rest.first(part.len() as u64);
            let [front, back] = self.rcv.ring.slices(taken);
            part[..front.len()].copy_from_slice(front);
            part[front.len()..front.len() + back.len()].copy_from_slice(back);
            rest.start = taken.end;
        }
        (before - rest.len()) as usize
    }

    /// Returns the bytes that were received and not read, without copying them.
    pub fn readable(&self) -> [&[u8]; 2] {
        self.rcv.ring.slices(self.rcv.readable())
    }

    /// Removes up to `count` received bytes.
    pub fn consume(&mut self, count: usize) {
        let taken = self.rcv.readable().first(count as u64).len();
        if taken == 0 {
            return;
        }
        let before = self.rcv.window.left(self.rcv.nxt);
        self.rcv.read += taken;
        self.rcv.window.on_read(taken);
        let emptied = self.rcv.readable().is_empty();
        if emptied && self.rcv.assembler.is_empty() {
            self.rcv.ring.rewind(self.rcv.nxt);
        }
        if self.state == TcpState::Closed || self.rcv.shutdown {
            return;
        }
        self.acks.on_read(self.rcv.nxt - self.rcv.window.wup, emptied);
        self.open_window(before);
    }

    /// Returns true if a segment with sequence number `seq` and `len` bytes of data is the next
    /// expected one, so that [`Connection::on_segment_lent`] lends all of its data unless the
    /// segment is refused for its header.
    pub fn is_next(&self, seq: SeqNum, len: usize) -> bool {
        let nxt = self.rcv.nxt;
        position::near(nxt, seq.0) == nxt
            && nxt + len as u64 <= self.rcv.window.edge
            && self.rcv.fin.is_none()
            && self.rcv.readable().is_empty()
            && self.rcv.assembler.is_empty()
    }

    /// Returns true if a RST with sequence number `seq` ends an open connection (RFC 5961, 3.2).
    pub fn is_reset_by(&self, seq: SeqNum) -> bool {
        position::near(self.rcv.nxt, seq.0) == self.rcv.nxt
    }

    /// Tells that the first `read` bytes of `bytes`, which `on_segment_lent` returned, have been
    /// read; copies the rest into the receive ring.
    pub fn settle(&mut self, bytes: &[u8], read: usize) {
        let Some(span) = self.rcv.lent.take() else { return };
        let read = read.min(span.len() as usize);
        if let Some(rest) = bytes.get(read..span.len() as usize) {
            self.rcv.ring.write(span.start + read as u64, rest);
        }
        self.consume(read);
    }

    /// Sends a window update if the window can double (`tcp_cleanup_rbuf`) or opens from 0.
    fn open_window(&mut self, before: u64) {
        if self.rcv.fin_taken() || 2 * before > self.rcv.window.limit() {
            return;
        }
        let chosen = self.choose_window();
        if chosen > 0 && chosen >= 2 * before {
            self.acks.send_now();
        }
    }

    /// Returns the window that could be announced now.
    pub(super) fn choose_window(&self) -> u64 {
        self.rcv.window.choose(self.rcv.nxt, self.rcv.readable().len(), self.acks.segment())
    }

    /// Returns the end of the received stream, valid once all bytes were read.
    pub fn receive_end(&self) -> ReceiveEnd {
        match (self.state, self.closed) {
            _ if self.rcv.fin_taken() || self.rcv.shutdown => ReceiveEnd::Finished,
            (TcpState::Closed, Some(reason)) => ReceiveEnd::Failed(reason),
            (TcpState::Closed, None) => ReceiveEnd::Finished,
            _ => ReceiveEnd::Open,
        }
    }

    /// Returns true if `poll` reports the socket readable (`tcp_stream_is_readable`): `SO_RCVLOWAT`
    /// bytes wait, or as many as the window allows, or the stream has ended.
    pub fn is_readable(&self) -> bool {
        let there = self.rcv.readable().len();
        let enough = there >= u64::from(self.options.rcvlowat).max(1);
        let full = self.rcv.window.left(self.rcv.nxt) <= u64::from(self.acks.segment());
        enough || (there > 0 && full) || self.receive_end() != ReceiveEnd::Open
    }

    /// Returns the number of bytes received and not read (`SIOCINQ`).
    pub fn siocinq(&self) -> usize {
        self.rcv.readable().len() as usize
    }

    /// Returns the number of bytes that have come and wait behind a gap.
    pub fn out_of_order_bytes(&self) -> usize {
        self.rcv.assembler.bytes() as usize
    }

    /// Returns the number of bytes written and not acknowledged, including a FIN as in Linux
    /// (`SIOCOUTQ`).
    pub fn siocoutq(&self) -> usize {
        let end = self.snd.end + u64::from(self.snd.fin);
        end.saturating_sub(self.snd.una) as usize
    }

    /// Returns the number of bytes written and not sent (`SIOCOUTQNSD`).
    pub fn siocoutqnsd(&self) -> usize {
        let end = self.snd.end + u64::from(self.snd.fin);
        end.saturating_sub(self.snd.nxt) as usize
    }

    /// Returns the written bytes from the first unacknowledged one on, without copying them.
    pub fn unacknowledged(&self) -> [&[u8]; 2] {
        self.snd.slices(Span::new(self.snd.una.min(self.snd.end), self.snd.end))
    }

    /// Closes the sending direction (`SHUT_WR`): a FIN follows the written bytes (RFC 9293,
    /// 3.10.4).
    pub fn shutdown_send(&mut self) {
        match self.state {
            TcpState::Established => self.state = TcpState::FinWait1,
            TcpState::CloseWait => self.state = TcpState::LastAck,
            _ => return,
        }
        self.snd.fin = true;
        self.snd.more = false;
    }

    /// Closes the receiving direction (`SHUT_RD`): reads return 0. As in Linux, the peer is not
    /// informed.
    pub fn shutdown_receive(&mut self) {
        self.rcv.shutdown = true;
    }

    /// Ends the connection at once with RST (RFC 9293, 3.10.5).
    pub fn abort(&mut self) {
        if self.state != TcpState::Closed {
            self.reset_due = self.state != TcpState::TimeWait;
            self.close(Some(CloseReason::Aborted));
        }
    }
}
