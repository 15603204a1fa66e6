//! Bytes and room of the rings that are used in place, while no lock is held.
//!
//! The caller remembers what is lent, and calls nothing else of that direction until that is over:
//! the positions stay where they are. Not here: who may have the memory (`sojourn-library`,
//! `io::lend`).

use crate::ring::Stop;
use crate::stream::Stream;
use crate::write::REWIND_BYTES;
use core::sync::atomic::Ordering;
use sojourn_shm::Span;

/// Memory of a ring in its order: it may go on at the beginning of the ring.
pub type InPlace<'a> = [Option<Span<'a>>; 2];

impl Stream {
    /// Returns the number of bytes that can be read now; of more than `wanted` perhaps not all. The
    /// writer's line is left alone if so many were seen before. Reader lock.
    ///
    /// # Errors
    /// Those of [`Stream::available`].
    pub fn there(&self, wanted: usize) -> Result<usize, Stop> {
        let head = self.reading.own.load(Ordering::Relaxed);
        let known = self.reading.peer.load(Ordering::Relaxed).saturating_sub(head) as usize;
        if (1..=known).contains(&wanted) { Ok(known) } else { self.available() }
    }

    /// Returns the place of the next `len` bytes that can be read, which [`Stream::there`] has
    /// counted. The writer writes nothing there until they are consumed ([`Stream::use_up`]), if it
    /// is honest. The two parts may be fewer bytes. Reader lock.
    pub fn there_at(&self, len: usize) -> InPlace<'_> {
        let head = self.reading.own.load(Ordering::Relaxed);
        // The place is read after bytes were seen, see `Ring::place`.
        let place = self.in_ring().place(self.in_bytes());
        in_place(len, |done| self.span(1 - self.side, head + done as u64, place, len - done))
    }

    /// Consumes `len` of the bytes that were read in place. Reader lock.
    ///
    /// # Errors
    /// [`Stop::Frozen`]: they count as unread. [`Stop::Violation`].
    pub fn use_up(&self, len: usize) -> Result<(), Stop> {
        let head = self.reading.own.load(Ordering::Relaxed);
        let known = self.reading.peer.load(Ordering::Relaxed).saturating_sub(head) as usize;
        self.consume(head, len.min(known))
    }

    /// Returns the number of bytes that can be written now, `max` at most. The reader does not look
    /// at their place ([`Stream::reserved_at`]) before they are published
    /// ([`Stream::publish_filled`]). Writer lock.
    ///
    /// # Errors
    /// [`Stop::Full`]: there is not room for `at_least` bytes. [`Stop::NotOnRing`]: there never is,
    /// or the ring is not in use. [`Stop::Frozen`], [`Stop::Violation`].
    pub fn reserve(&self, at_least: usize, max: usize) -> Result<usize, Stop> {
        if !self.uses_ring() {
            return Err(Stop::NotOnRing);
        }
        let tail = self.out_ring().tail()?;
        if tail != self.writing.own.load(Ordering::Relaxed) {
            return Err(Stop::Violation);
        }
        let is_due = tail >= self.writing.rewinds_at.load(Ordering::Relaxed);
        if (is_due && max < REWIND_BYTES) || self.has_turned() {
            self.rewind(tail);
        }
        if at_least > self.part_bytes() as usize {
            return Err(Stop::NotOnRing);
        }
        let len = self.room_for(tail, max)?.min(max);
        if len < at_least { Err(Stop::Full) } else { Ok(len) }
    }

    /// Returns the place of the next `len` bytes to be written. Writer lock.
    pub fn reserved_at(&self, len: usize) -> InPlace<'_> {
        let tail = self.writing.own.load(Ordering::Relaxed);
        in_place(len, |done| self.own_span(tail + done as u64, len - done))
    }
}

fn in_place<'a>(len: usize, part: impl Fn(usize) -> Option<Span<'a>>) -> InPlace<'a> {
    let first = part(0);
    let done = first.map_or(len, |first| first.len());
    [first, if done < len { part(done) } else { None }]
}
