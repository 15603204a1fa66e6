//! Reading: the ring of the peer. All of it under the caller's reader lock.

use crate::ring::{Stop, used};
use crate::stream::Stream;
use core::sync::atomic::Ordering;
use std::io::IoSliceMut;

impl Stream {
    /// Consents: this side's reader looks at ring and kernel both from now on.
    pub fn consent(&self) {
        if self.in_bytes() != 0 {
            // SYNC: release; pairs with the acquire in `has_consent`.
            self.in_ring().reader.consents.store(1, Ordering::Release);
        }
    }

    /// Whether this side has consented.
    pub fn has_consented(&self) -> bool {
        self.in_ring().reader.consents.load(Ordering::Relaxed) != 0
    }

    /// Whether the peer writes to the ring. Who has seen it reads the kernel until that is empty, and
    /// from then on the ring only.
    pub fn peer_rings(&self) -> bool {
        if self.reading.rings.load(Ordering::Relaxed) {
            return true;
        }
        // SYNC: acquire; pairs with the release in `start_ring`.
        let rings = self.in_bytes() != 0 && self.in_ring().tail.rings.load(Ordering::Acquire) != 0;
        if rings {
            self.reading.rings.store(true, Ordering::Relaxed);
        }
        rings
    }

    /// Bytes that can be read now; 0 for none.
    ///
    /// # Errors
    /// [`Stop::NotRinging`], [`Stop::Frozen`], [`Stop::Violation`].
    #[inline]
    pub fn available(&self) -> Result<usize, Stop> {
        if !self.peer_rings() {
            return Err(Stop::NotRinging);
        }
        used(self.in_ring().tail()?, self.reading.own.load(Ordering::Relaxed), self.in_bytes())
    }

    /// Copies what there is to `bufs`, up to their length, and consumes it unless `peek`; rings a writer
    /// that waits for room. Answers the bytes copied. Reader lock.
    ///
    /// # Errors
    /// [`Stop::Empty`], [`Stop::NotRinging`], [`Stop::Frozen`], [`Stop::Violation`]: nothing was consumed,
    /// and what may have been copied does not count.
    #[inline]
    pub fn read(&self, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Stop> {
        let available = self.available()?;
        if available == 0 {
            return Err(Stop::Empty);
        }
        let head = self.reading.own.load(Ordering::Relaxed);
        let read = self.copy_out(head, available, bufs);
        if peek {
            self.in_ring().head()?;
        } else if read > 0 {
            self.consume(head, read)?;
        }
        Ok(read)
    }

    fn copy_out(&self, head: u64, available: usize, bufs: &mut [IoSliceMut<'_>]) -> usize {
        let mut read = 0;
        for buf in bufs {
            let mut at = 0;
            while at < buf.len() && read < available {
                let part = (buf.len() - at).min(available - read);
                let Some(span) = self.span(1 - self.side, head + read as u64, part) else {
                    return read;
                };
                let copied = span.copy_to(&mut buf[at..]);
                at += copied;
                read += copied;
            }
        }
        read
    }

    #[inline]
    fn consume(&self, head: u64, len: usize) -> Result<(), Stop> {
        let ring = self.in_ring();
        self.tell_cpu(&self.reading, &ring.reader.cpu);
        let to = head + len as u64;
        ring.consume(head, to)?;
        self.reading.own.store(to, Ordering::Relaxed);
        if ring.writer.bell.has_sleepers() && to >= ring.writer.want.load(Ordering::Relaxed) {
            self.wake_peer(&ring.writer.bell);
        }
        Ok(())
    }
}
