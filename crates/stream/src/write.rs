//! Writing the own ring, under the caller's writer lock.
//!
//! Not here: how much room there is (`room`), the ring's words (`ring`), and waiting (`stream`).

use crate::cache::NO_TURN;
use crate::ring::{Geometry, RingRun, SHORT_MAX, Stop, used};
use crate::stream::Stream;
use core::sync::atomic::Ordering;
use sojourn_shm::{Span, fault};
use std::io::IoSlice;

/// Returns the number of bytes after which a long write publishes, and a long read consumes, so
/// that the peer goes on with them meanwhile. The value was measured (`examples/measure.rs`): less
/// costs more lines, more leaves the peer waiting. A peer on this processor (`is_near`) cannot go
/// on meanwhile, and would take the processor for each piece: it gets all at once.
pub(crate) fn chunk(ring_bytes: u32, is_near: bool) -> usize {
    if is_near { usize::MAX } else { (ring_bytes as usize / 4).clamp(4096, 16 << 10) }
}

/// Bytes after which a long write wakes a reader that sleeps again: a reader that has outrun the
/// writer sleeps and wakes for longer than the next piece takes to copy.
const RING_BYTES: usize = 128 << 10;

/// Memory of a far part that is kept once it has been used (bytes).
const FAR_KEPT: usize = 1 << 20;

/// A writer of fewer bytes than this looks now and then whether the ring is empty, and then begins
/// at the ring's beginning again. Longer messages walk through the whole ring, so that they are
/// written where the reader, on another processor, has read a while ago.
pub(crate) const REWIND_BYTES: usize = 4096;

impl Stream {
    /// Returns true if the peer's reader has consented, and looks at the ring.
    pub fn has_consent(&self) -> bool {
        self.out_bytes() != 0 && self.out_ring().has_consent()
    }

    /// Switches: from now on writes go to the ring. Only after [`Stream::has_consent`], and when
    /// every byte written before is where the peer finds it in the kernel. Writer lock.
    pub fn use_ring(&self) {
        // `rewind` and `turn` decide where later bytes lie.
        if self.out_bytes() == 0 || self.writing.uses_ring.swap(true, Ordering::Relaxed) {
            return;
        }
        let ring = self.out_ring();
        ring.start(self.near_bytes());
        fault::point("stream.started");
        if ring.reader.bell.has_sleepers_after_store() {
            self.wake_peer(&ring.reader.bell);
        }
    }

    /// Returns true if this side writes to the ring.
    pub fn uses_ring(&self) -> bool {
        self.writing.uses_ring.load(Ordering::Relaxed)
    }

    /// Copies as much of `bufs` as there is room for, but nothing unless `at_least` bytes fit (or
    /// all, if they are fewer), and rings the reader. Up to 4096 bytes of `at_least` always fit an
    /// empty ring. They are published at once, further bytes in pieces, of which not each rings
    /// (`RING_BYTES`). Returns the number of bytes written. Writer lock.
    ///
    /// # Errors
    /// [`Stop::Full`], [`Stop::NotOnRing`], [`Stop::Frozen`], [`Stop::Violation`]: nothing was
    /// written.
    #[inline]
    pub fn write(&self, bufs: &[IoSlice<'_>], at_least: usize) -> Result<usize, Stop> {
        if !self.uses_ring() {
            return Err(Stop::NotOnRing);
        }
        let total = bufs.iter().fold(0usize, |sum, buf| sum.saturating_add(buf.len()));
        let mut tail = self.writing.own.load(Ordering::Relaxed);
        let is_due = tail >= self.writing.rewinds_at.load(Ordering::Relaxed);
        // After a turn every write looks, so that the near part is in use again as soon as may be.
        if (is_due && total < REWIND_BYTES) || self.has_turned() {
            self.rewind(tail);
        }
        let len = self.room_for(tail, total)?.min(total);
        if len < at_least.min(total) || (len == 0 && total != 0) {
            return Err(Stop::Full);
        }
        if len <= SHORT_MAX && len == total {
            return self.write_short(tail, bufs, len);
        }
        let mut source = Source { bufs, at: 0 };
        let chunk = chunk(self.out_bytes(), self.reader_is_near());
        // The first piece has all bytes of `at_least`, which are published at once.
        let (mut written, mut piece) = (0, chunk.max(at_least));
        let mut rings_at = 0;
        while written < len {
            let part = piece.min(len - written);
            source.copy(self, tail, part);
            match self.publish_quietly(tail, part) {
                Ok(()) => {}
                // The pieces before count; the next call reports the reason.
                Err(_) if written > 0 => break,
                Err(stop) => return Err(stop),
            }
            (tail, written, piece) = (tail + part as u64, written + part, chunk);
            if written > rings_at {
                self.ring_reader();
                rings_at = written + RING_BYTES;
            }
        }
        self.ring_reader();
        Ok(written)
    }

    /// Lets the next bytes lie at the ring's beginning again, if the ring is empty. In any case the
    /// next look comes after a while.
    #[inline(never)]
    pub(crate) fn rewind(&self, tail: u64) {
        self.writing.rewinds_at.store(tail + REWIND_BYTES as u64, Ordering::Relaxed);
        // All bytes have been copied out: the reader looks at the ring's memory only when there are
        // more.
        if self.out_bytes() > 0 && self.out_ring().head() == Ok(tail) {
            let near = self.near_bytes();
            // With this skew the byte at `tail` lies at the beginning of the near part.
            let skew = (tail as u32).wrapping_neg() & (near - 1);
            self.give_back(tail);
            self.remember(Geometry { skew, near, turn: None });
            self.out_ring().set_near(near, skew);
            self.writing.peer.store(tail, Ordering::Relaxed);
        }
    }

    /// Gives most of the far part's memory back to the kernel, as no bytes lie there any more.
    fn give_back(&self, tail: u64) {
        if !self.gives_back {
            return;
        }
        let far = (self.out_bytes() - self.near_bytes()) as usize;
        let turn = self.writing.turn.load(Ordering::Relaxed);
        let touched = tail.saturating_sub(turn).min(far as u64) as usize;
        if let Some(len @ 1..) = touched.checked_sub(FAR_KEPT) {
            let begin = self.layout.ring_offset(self.side) + self.near_bytes() as usize;
            self.mapping.discard(begin + FAR_KEPT, len.next_multiple_of(4096));
        }
    }

    /// Writes a message that also fits beside the tail.
    #[inline]
    fn write_short(&self, tail: u64, bufs: &[IoSlice<'_>], len: usize) -> Result<usize, Stop> {
        if len == 0 {
            return Ok(0);
        }
        let mut bytes = [0; SHORT_MAX];
        let mut at = 0;
        for buf in bufs {
            bytes[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        let one = [IoSlice::new(&bytes[..len])];
        Source { bufs: &one, at: 0 }.copy(self, tail, len);
        let mut words = [0; SHORT_MAX / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let ring = self.out_ring();
        ring.put_short(tail, len, &words[..len.div_ceil(8)]);
        self.publish(tail, len)?;
        Ok(len)
    }

    /// Lets `fill` put bytes straight into the ring (`sendfile(2)`): `fill` gets one span of at
    /// most `max` bytes, and returns how many it has filled. Writer lock.
    ///
    /// # Errors
    /// Those of [`Stream::write`]; the inner result is that of `fill`.
    pub fn write_with<E>(
        &self,
        max: usize,
        fill: impl FnOnce(Span<'_>) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, Stop> {
        if !self.uses_ring() {
            return Err(Stop::NotOnRing);
        }
        let tail = self.writing.own.load(Ordering::Relaxed);
        if self.has_turned() {
            self.rewind(tail);
        }
        let len = self.room_for(tail, max.max(1))?.min(max);
        if len == 0 {
            return if max == 0 { Ok(Ok(0)) } else { Err(Stop::Full) };
        }
        // The tail shows if the ring is frozen: then `fill` must not take bytes from its source.
        self.out_ring().tail()?;
        let Some(span) = self.own_span(tail, len) else { return Err(Stop::Violation) };
        match fill(span) {
            Ok(0) => Ok(Ok(0)),
            Ok(filled) => {
                let filled = filled.min(span.len());
                self.publish(tail, filled)?;
                Ok(Ok(filled))
            }
            failed => Ok(failed),
        }
    }

    /// Returns the place of the next `len` bytes, in up to two parts, to be filled and then
    /// published with [`Stream::publish_filled`]. The reader does not look there before that.
    /// Writer lock, until then.
    ///
    /// # Errors
    /// [`Stop::Full`]: there is not room for all of them. [`Stop::NotOnRing`], [`Stop::Frozen`],
    /// [`Stop::Violation`].
    pub fn vacant(&self, len: usize) -> Result<[Option<Span<'_>>; 2], Stop> {
        if !self.uses_ring() {
            return Err(Stop::NotOnRing);
        }
        let tail = self.out_ring().tail()?;
        if tail != self.writing.own.load(Ordering::Relaxed) {
            return Err(Stop::Violation);
        }
        if self.room_for(tail, len)? < len {
            return Err(Stop::Full);
        }
        let first = self.own_span(tail, len).ok_or(Stop::Violation)?;
        let rest = len - first.len();
        let second = (rest > 0).then(|| self.own_span(tail + first.len() as u64, rest));
        Ok([Some(first), second.flatten()])
    }

    /// Publishes `len` bytes that were filled in the place that [`Stream::vacant`] returned, and
    /// rings the reader. Writer lock.
    ///
    /// # Errors
    /// [`Stop::Frozen`], [`Stop::Violation`]: nothing was published.
    pub fn publish_filled(&self, len: usize) -> Result<(), Stop> {
        self.publish(self.writing.own.load(Ordering::Relaxed), len)
    }

    /// Returns the number of bytes written that the peer has not read yet; 0 if that cannot be
    /// known.
    pub fn pending(&self) -> usize {
        let tail = self.writing.own.load(Ordering::Relaxed);
        let head = self.out_ring().head.head.load(Ordering::Acquire) & !crate::ring::FROZEN;
        used(tail, head, self.out_bytes()).unwrap_or(0)
    }

    #[inline]
    fn publish(&self, tail: u64, len: usize) -> Result<(), Stop> {
        self.publish_quietly(tail, len)?;
        self.ring_reader();
        Ok(())
    }

    /// Publishes; [`Stream::ring_reader`] has to follow, however the call ends.
    #[inline]
    fn publish_quietly(&self, tail: u64, len: usize) -> Result<(), Stop> {
        let ring = self.out_ring();
        self.publish_cpu(&self.writing, &ring.tail.cpu);
        fault::point("stream.copied");
        ring.publish(tail, tail + len as u64)?;
        fault::point("stream.published");
        self.writing.own.store(tail + len as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Wakes the peer's readers if they sleep; after a publication.
    #[inline]
    fn ring_reader(&self) {
        let bell = &self.out_ring().reader.bell;
        if bell.has_sleepers() && !self.holds_back() {
            self.wake_peer(bell);
        }
    }

    /// Returns where the own ring's bytes lie.
    #[inline]
    pub(crate) fn own_place(&self) -> Geometry {
        let turn = self.writing.turn.load(Ordering::Relaxed);
        Geometry {
            skew: self.writing.skew.load(Ordering::Relaxed),
            near: self.near_bytes(),
            turn: (turn != NO_TURN).then_some(turn),
        }
    }

    /// Returns the memory of the own ring's bytes from `position` on.
    pub(crate) fn own_span(&self, position: u64, len: usize) -> Option<Span<'_>> {
        self.span(self.side, position, self.own_place(), len)
    }

    /// Returns the memory of ring `ring` for the bytes from `position` on: `len` of them, or as
    /// many as follow one another.
    pub(crate) fn span(
        &self,
        ring: usize,
        position: u64,
        place: Geometry,
        len: usize,
    ) -> Option<Span<'_>> {
        let RingRun { offset: at, len: rest } = place.of(position, self.layout.ring_bytes(ring));
        self.mapping.span(self.layout.ring_offset(ring) + at, len.min(rest))
    }
}

/// The rest of the buffers to write.
struct Source<'b, 'd> {
    bufs: &'b [IoSlice<'d>],
    at: usize,
}

impl Source<'_, '_> {
    /// Copies the next `len` bytes to the place of position `tail`.
    fn copy(&mut self, stream: &Stream, mut tail: u64, mut len: usize) {
        while len > 0 {
            let Some(buf) = self.bufs.first() else { return };
            let rest = &buf[self.at..];
            if rest.is_empty() {
                self.bufs = &self.bufs[1..];
                self.at = 0;
                continue;
            }
            let part = rest.len().min(len);
            let Some(span) = stream.own_span(tail, part) else { return };
            let copied = span.copy_from(&rest[..part]);
            self.at += copied;
            tail += copied as u64;
            len -= copied;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chunk;

    #[test]
    fn only_a_peer_that_runs_beside_us_is_told_of_pieces() {
        assert_eq!(chunk(1 << 20, false), 16 << 10);
        assert_eq!(chunk(4096, false), 4096);
        assert_eq!(chunk(1 << 20, true), usize::MAX);
    }
}
