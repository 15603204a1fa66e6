//! Reading the peer's ring, under the caller's reader lock.
//!
//! Not here: the ring's words (`ring`), and waiting (`stream`).

use crate::ring::{SHORT_MAX, Stop, used};
use crate::stream::Stream;
use crate::write::chunk;
use core::sync::atomic::Ordering;
use sojourn_shm::fault;
use std::io::IoSliceMut;

/// A read of fewer bytes than this does not look again for more.
const AGAIN_MIN: usize = 4096;

impl Stream {
    /// Consents: from now on this side's reader looks at ring and kernel both.
    pub fn consent(&self) {
        if self.in_bytes() != 0 {
            self.reading.consents.store(true, Ordering::Relaxed);
            self.in_ring().consent();
            fault::point("stream.consented");
        }
    }

    /// Returns true if this side has consented.
    pub fn has_consented(&self) -> bool {
        self.reading.consents.load(Ordering::Relaxed)
    }

    /// Returns true if the peer writes to the ring. A reader that has seen this reads the kernel
    /// until that is empty, and from then on the ring only.
    pub fn peer_uses_ring(&self) -> bool {
        if self.reading.uses_ring.load(Ordering::Relaxed) {
            return true;
        }
        let uses_ring = self.in_bytes() != 0 && self.in_ring().is_used();
        if uses_ring {
            self.reading.uses_ring.store(true, Ordering::Relaxed);
        }
        uses_ring
    }

    /// Returns the number of bytes that can be read now. Bytes once counted here stay readable,
    /// whatever the peer does. Reader lock.
    ///
    /// # Errors
    /// [`Stop::NotOnRing`], [`Stop::Frozen`], [`Stop::Violation`].
    #[inline]
    pub fn available(&self) -> Result<usize, Stop> {
        if !self.peer_uses_ring() {
            return Err(Stop::NotOnRing);
        }
        let seen = &self.reading;
        // A thread that has seen more looks again, and sees as much.
        let said = seen.said();
        let tail = self.in_ring().tail()?;
        let available = used(tail, seen.own.load(Ordering::Relaxed), self.in_bytes())?;
        // A published byte cannot be taken back.
        if tail < said {
            return Err(Stop::Violation);
        }
        seen.peer.store(tail, Ordering::Relaxed);
        Ok(available)
    }

    /// Returns true if a read may have a result: there are bytes, or something has ended. For a
    /// thread that waits, without any lock. A read finds what this has seen once: a peer that takes
    /// it back breaks the rules of the ring.
    pub fn may_read(&self) -> bool {
        if !self.peer_uses_ring() {
            return false;
        }
        // Loaded before the tail, because it only grows.
        let own = self.reading.own.load(Ordering::Relaxed);
        match self.in_ring().tail() {
            Ok(tail) if tail == own => false,
            Ok(tail) => {
                // SYNC: release; pairs with the load in `said`.
                self.reading.sighted.fetch_max(tail, Ordering::Release);
                true
            }
            Err(_) => {
                self.saw_end();
                true
            }
        }
    }

    /// Copies bytes to `bufs`, up to their length, and consumes them unless `peek`; rings a writer
    /// that waits for room. Returns the number of bytes copied. Reader lock.
    ///
    /// # Errors
    /// [`Stop::Empty`], [`Stop::NotOnRing`], [`Stop::Frozen`], [`Stop::Violation`]: nothing was
    /// consumed, and bytes that were copied do not count.
    #[inline]
    pub fn read(&self, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Stop> {
        let head = self.reading.own.load(Ordering::Relaxed);
        let available = self.available_for(head, bufs)?;
        if peek {
            let read = self.copy_out(head, available, &mut Target::new(bufs));
            self.in_ring().head()?;
            return Ok(read);
        }
        if (1..=SHORT_MAX).contains(&available)
            && let Some(short) = self.in_ring().copy_short(head, available)
        {
            let read = scatter(&short[..available], bufs);
            return if read > 0 { self.consume(head, read).map(|()| read) } else { Ok(0) };
        }
        self.read_pieces(head, available, &mut Target::new(bufs))
    }

    /// Returns the bytes that can be read from byte `skip` on, `len` at most, in place, in up to
    /// two parts. They stay there: the writer finds no room for more until [`Stream::release`].
    /// This holds in a frozen stream, too, so that a thread that has begun to send them can finish.
    /// Reader lock.
    ///
    /// # Errors
    /// [`Stop::NotOnRing`], [`Stop::Violation`].
    ///
    /// # Safety
    /// While the answer is in use nobody writes to bytes of this ring that are published and not
    /// released: its writer is trusted, like one in the same process.
    pub unsafe fn ahead(&self, skip: usize, len: usize) -> Result<[&[u8]; 2], Stop> {
        if !self.peer_uses_ring() {
            return Err(Stop::NotOnRing);
        }
        let head = self.reading.own.load(Ordering::Relaxed);
        let there = used(self.in_ring().last_tail(), head, self.in_bytes())?;
        // The place is read after bytes were seen, see `Ring::place`.
        let place = self.in_ring().place(self.in_bytes());
        let (from, len) = (head + skip as u64, there.saturating_sub(skip).min(len));
        let part = |at: usize| {
            let span = self.span(1 - self.side, from + at as u64, place, len - at)?;
            // SAFETY: the caller's promise; the mapping lives as long as the stream.
            Some(unsafe { span.as_slice() })
        };
        let first = part(0).unwrap_or_default();
        Ok([first, if first.len() < len { part(first.len()).unwrap_or_default() } else { &[] }])
    }

    /// Consumes `len` bytes that were looked at with [`Stream::ahead`]. Reader lock.
    ///
    /// # Errors
    /// [`Stop::Frozen`], [`Stop::Violation`].
    pub fn release(&self, len: usize) -> Result<(), Stop> {
        let len = len.min(self.available()?);
        self.consume(self.reading.own.load(Ordering::Relaxed), len)
    }

    /// Counts `len` bytes that the reader has got past the empty ring, from a writer in its own
    /// process. Reader lock.
    pub fn got_beside(&self, len: usize) {
        let beside = &self.in_ring().head.beside;
        beside.store(beside.load(Ordering::Relaxed).wrapping_add(len as u64), Ordering::Relaxed);
    }

    /// Returns the number of bytes that can be read at `head`. If those seen before fill `bufs`,
    /// the writer's line is left alone.
    #[inline]
    fn available_for(&self, head: u64, bufs: &[IoSliceMut<'_>]) -> Result<usize, Stop> {
        let known = self.reading.peer.load(Ordering::Relaxed).saturating_sub(head) as usize;
        let wanted = bufs.iter().fold(0usize, |sum, buf| sum.saturating_add(buf.len()));
        if (1..=known).contains(&wanted) {
            return Ok(known);
        }
        let available = self.available()?;
        if available > 0 { Ok(available) } else { Err(Stop::Empty) }
    }

    /// Copies and consumes piece by piece, so that the writer finds room during the copy, and goes
    /// on with bytes that are published meanwhile.
    fn read_pieces(
        &self,
        mut head: u64,
        mut available: usize,
        target: &mut Target<'_, '_>,
    ) -> Result<usize, Stop> {
        let (mut read, piece) = (0, chunk(self.in_bytes(), self.writer_is_near()));
        loop {
            let part = self.copy_out(head, available.min(piece), target);
            if part == 0 {
                return Ok(read);
            }
            match self.consume(head, part) {
                Ok(()) => {}
                Err(_) if read > 0 => return Ok(read),
                Err(stop) => return Err(stop),
            }
            (head, read, available) = (head + part as u64, read + part, available - part);
            if available == 0 {
                // A short message is not worth a look at a line that the peer may be about to
                // write.
                if part < AGAIN_MIN {
                    return Ok(read);
                }
                match self.available() {
                    Ok(more) if more > 0 => available = more,
                    _ => return Ok(read),
                }
            }
        }
    }

    fn copy_out(&self, head: u64, len: usize, target: &mut Target<'_, '_>) -> usize {
        let mut copied = 0;
        // The caller has seen that there are bytes.
        let place = self.in_ring().place(self.in_bytes());
        while copied < len {
            let Some(buf) = target.rest() else { break };
            let from = head + copied as u64;
            let Some(span) = self.span(1 - self.side, from, place, len - copied) else { break };
            let part = span.copy_to(buf);
            target.at += part;
            copied += part;
        }
        copied
    }

    #[inline]
    pub(crate) fn consume(&self, head: u64, len: usize) -> Result<(), Stop> {
        let ring = self.in_ring();
        self.publish_cpu(&self.reading, &ring.reader.cpu);
        let to = head + len as u64;
        fault::point("stream.read");
        ring.consume(head, to)?;
        fault::point("stream.consumed");
        self.reading.own.store(to, Ordering::Relaxed);
        if ring.writer.bell.has_sleepers() && to >= ring.writer.want.load(Ordering::Relaxed) {
            self.wake_peer(&ring.writer.bell);
        }
        Ok(())
    }
}

/// The rest of the buffers to read to.
struct Target<'b, 'd> {
    bufs: &'b mut [IoSliceMut<'d>],
    first: usize,
    at: usize,
}

impl<'b, 'd> Target<'b, 'd> {
    fn new(bufs: &'b mut [IoSliceMut<'d>]) -> Self {
        Self { bufs, first: 0, at: 0 }
    }

    /// Returns the rest of the first buffer that is not full.
    fn rest(&mut self) -> Option<&mut [u8]> {
        while self.bufs.get(self.first)?.len() == self.at {
            (self.first, self.at) = (self.first + 1, 0);
        }
        Some(&mut self.bufs[self.first][self.at..])
    }
}

fn scatter(mut bytes: &[u8], bufs: &mut [IoSliceMut<'_>]) -> usize {
    let mut read = 0;
    for buf in bufs {
        let part = buf.len().min(bytes.len());
        buf[..part].copy_from_slice(&bytes[..part]);
        bytes = &bytes[part..];
        read += part;
    }
    read
}
