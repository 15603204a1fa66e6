//! The way home: freezing, and what is left in the rings (`docs/streams.md`, "Going home").

use crate::ring::{FLUSHED, FLUSHING, Stop};
use crate::stream::Stream;
use core::sync::atomic::Ordering;
use sojourn_shm::{Span, fault};

impl Stream {
    /// Ends all progress in both rings. Any side, any thread, any number of times; wakes nobody
    /// ([`Stream::ring_peer`], [`Stream::wake_reader`], [`Stream::wake_writer`]).
    ///
    /// Whoever gets [`Stop::Frozen`] calls this too before it looks at a leftover: the peer may have died
    /// half-way.
    pub fn freeze(&self) {
        self.out_ring().freeze();
        fault::point("stream.freezing");
        self.in_ring().freeze();
        fault::point("stream.frozen");
    }

    /// Whether a freeze has at least begun.
    pub fn is_frozen(&self) -> bool {
        self.out_ring().is_frozen() || self.in_ring().is_frozen()
    }

    /// This process carries the session of this stream from now on, as [`crate::Ledger::claim`] has it; but not one that is called home already. Whoever
    /// freezes it and must know whether it is carried asks under the lock that this is called under, afterwards.
    pub fn claim(&self) -> bool {
        !self.is_frozen() && self.ledger().claim()
    }

    /// Bytes of the frozen own ring that the peer has not read: they belong into the kernel, before
    /// anything else is written there.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn own_leftover(&self) -> Result<usize, Stop> {
        Ok(self.out_ring().leftover(self.out_bytes())?.1)
    }

    /// Where the own leftover lies from its byte `skip` on, `max` bytes at most, as far as they follow one another. `None` at its end.
    pub fn own_leftover_at(&self, skip: usize, max: usize) -> Option<Span<'_>> {
        fault::point("stream.flushing");
        let (head, len) = self.out_ring().leftover(self.out_bytes()).ok()?;
        let wanted = len.checked_sub(skip).filter(|left| *left > 0)?.min(max);
        self.span(self.side, head + skip as u64, self.out_ring().place(self.out_bytes()), wanted)
    }

    /// Copies the own leftover from its byte `skip` on; answers how many bytes, 0 at its end.
    pub fn copy_own_leftover(&self, skip: usize, buf: &mut [u8]) -> usize {
        fault::point("stream.flushing");
        self.copy_leftover(self.side, skip, buf)
    }

    /// The first `bytes` of the own leftover are in the kernel. The peer takes it as done when that is
    /// all of it, so also an empty leftover must be told.
    pub fn set_flushed(&self, bytes: usize) {
        // SYNC: release, so that who sees it finds the bytes in the kernel; pairs with `peer_flushed`.
        self.out_ring().writer.flushed.store(bytes as u64 | FLUSHED, Ordering::Release);
        fault::point("stream.flushed");
    }

    /// Whether this side has told so, by whichever view of it.
    pub fn has_flushed(&self) -> bool {
        // SYNC: acquire, as in `peer_flushed`.
        self.out_ring().writer.flushed.load(Ordering::Acquire) & FLUSHED != 0
    }

    /// The first `bytes` of the own leftover are in the kernel, and the rest follows as there is room: nothing else is
    /// written there before. The caller rings the peer next.
    pub fn set_flushing(&self, bytes: usize) {
        // SYNC: release, as in `set_flushed`; pairs with `peer_flushing`.
        self.out_ring().writer.flushed.store(bytes as u64 | FLUSHING, Ordering::Release);
    }

    /// How much of its leftover the peer has put into the kernel so far, if it said that the rest follows.
    pub fn peer_flushing(&self) -> Option<usize> {
        // SYNC: acquire; pairs with the release in `set_flushing`.
        let flushed = self.in_ring().writer.flushed.load(Ordering::Acquire);
        let leftover = self.peer_leftover().ok()?;
        let bytes = usize::try_from(flushed & !(FLUSHED | FLUSHING)).unwrap_or(usize::MAX);
        (flushed & (FLUSHED | FLUSHING) == FLUSHING).then_some(bytes.min(leftover))
    }

    /// Bytes of the frozen other ring that this side had not read: they come through the kernel.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn peer_leftover(&self) -> Result<usize, Stop> {
        Ok(self.in_ring().leftover(self.in_bytes())?.1)
    }

    /// Bytes that this side has read, as the frozen other ring says: for somebody who has not read them himself.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn read_so_far(&self) -> Result<u64, Stop> {
        Ok(self.in_ring().leftover(self.in_bytes())?.0)
    }

    /// How much of its leftover the peer says it has put into the kernel, `None` if it has not said anything.
    pub fn peer_flushed(&self) -> Option<usize> {
        // SYNC: acquire; pairs with the release in `set_flushed`.
        let flushed = self.in_ring().writer.flushed.load(Ordering::Acquire);
        let leftover = self.peer_leftover().ok()?;
        let bytes = usize::try_from(flushed & !(FLUSHED | FLUSHING)).unwrap_or(usize::MAX);
        (flushed & FLUSHED != 0).then_some(bytes.min(leftover))
    }

    /// Copies the peer's leftover from its byte `skip` on: what it could not flush because it died.
    pub fn copy_unflushed(&self, skip: usize, buf: &mut [u8]) -> usize {
        self.copy_leftover(1 - self.side, skip, buf)
    }

    fn copy_leftover(&self, ring: usize, skip: usize, buf: &mut [u8]) -> usize {
        let words = if ring == self.side { self.out_ring() } else { self.in_ring() };
        let Ok((head, len)) = words.leftover(self.layout.ring_bytes(ring)) else { return 0 };
        let wanted = len.saturating_sub(skip).min(buf.len());
        // Frozen: if the writer changes it still, the ring was empty, and is for ever.
        let place = words.place(self.layout.ring_bytes(ring));
        let mut copied = 0;
        while copied < wanted {
            let position = head + (skip + copied) as u64;
            let Some(span) = self.span(ring, position, place, wanted - copied) else { break };
            copied += span.copy_to(&mut buf[copied..]);
        }
        copied
    }
}
