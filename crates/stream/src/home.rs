//! The way home: freezing, and the leftovers of the rings (`docs/understand/streams.md`, "Going
//! home").
//!
//! Not here: sending the leftovers (the caller does), and the words themselves ([`crate::ring`]).
//!
//! # What a hostile peer can do
//! Every shared word may change after the freeze as before it. So a leftover is decided once, from
//! one look at the peer's position and from the own private one, and kept in private memory
//! ([`LeftoverRange`]): a leftover has a length, and a walk through it ends. If the peer's position
//! is impossible, its leftover is the bytes that were seen before, of which the program may have
//! been told, and nothing is owed to it.

use crate::cache::LeftoverRange;
use crate::ring::{BEGUN, ENDS, FLUSH_BITS, FLUSHED, FLUSHING, Stop, used};
use crate::stream::{DONE, LIVES, SEEN, Stream};
use core::sync::atomic::Ordering;
use sojourn_shm::{Span, fault};

/// Parts of a leftover: each part of a ring, the near and the far one, has bytes up to its end and
/// from its beginning.
pub const LEFTOVER_PARTS: usize = 4;

/// The memory of a leftover, in its order.
pub type Leftover<'a> = [Option<Span<'a>>; LEFTOVER_PARTS];

impl Stream {
    /// Ends all progress in both rings. Any side may call this, from any thread, any number of
    /// times. It wakes nobody ([`Stream::notify_peer`], [`Stream::wake_reader`],
    /// [`Stream::wake_writer`]).
    ///
    /// A side that gets [`Stop::Frozen`] calls this, too, before it looks at a leftover: the peer
    /// may have died half-way.
    pub fn freeze(&self) {
        self.out_ring().freeze();
        fault::point("stream.freezing");
        self.in_ring().freeze();
        // SYNC: release; pairs with the acquire in `is_settled`.
        self.end.store(DONE, Ordering::Release);
        fault::point("stream.frozen");
    }

    /// Returns true if a freeze has at least begun, and then for ever.
    pub fn is_frozen(&self) -> bool {
        if self.end.load(Ordering::Relaxed) != LIVES {
            return true;
        }
        let is_frozen = self.out_ring().is_frozen() || self.in_ring().is_frozen();
        if is_frozen {
            self.saw_end();
        }
        is_frozen
    }

    #[cold]
    pub(crate) fn saw_end(&self) {
        self.end.fetch_max(SEEN, Ordering::Relaxed);
    }

    /// Returns true if the freeze is complete, so that leftovers can be decided.
    fn is_settled(&self) -> bool {
        // SYNC: acquire; pairs with the release in `freeze`.
        self.end.load(Ordering::Acquire) == DONE
    }

    /// Claims the session of this stream for this process, by [`crate::Ledger::claim`], unless it
    /// is called home already. The caller holds a lock. A thread that freezes the stream, and must
    /// know whether the session is carried, asks under the same lock afterwards.
    pub fn claim(&self) -> bool {
        !self.is_frozen() && self.ledger().claim()
    }

    /// Decides the bytes of the own ring that the peer has not read.
    fn own_left(&self) -> Result<LeftoverRange, Stop> {
        let seen = &self.writing;
        if let Some(left) = seen.left.get() {
            return *left;
        }
        let (ring, bytes) = (self.out_ring(), self.out_bytes());
        // A freeze that the peer has begun may be half done: then `positions` fails.
        if !self.is_settled() {
            ring.positions()?;
        }
        let head = ring.last_head();
        let (tail, least, place) = match self.is_observer {
            true => (ring.last_tail(), 0, ring.place(bytes)),
            false => {
                let own = seen.own.load(Ordering::Relaxed);
                (own, seen.said(), self.own_place())
            }
        };
        let left = match used(tail, head, bytes) {
            Ok(len) if head >= least => {
                Ok(LeftoverRange { from: head, len, place, is_broken: false })
            }
            _ => Err(Stop::Violation),
        };
        *seen.left.get_or_init(|| left)
    }

    /// Decides the bytes of the other ring that this side has not read.
    fn peer_left(&self) -> Result<LeftoverRange, Stop> {
        let seen = &self.reading;
        if let Some(left) = seen.left.get() {
            return *left;
        }
        let (ring, bytes) = (self.in_ring(), self.in_bytes());
        // As in `own_left`, a freeze that the peer has begun may be half done.
        if !self.is_settled() {
            ring.positions()?;
        }
        let tail = ring.last_tail();
        let (from, known) = match self.is_observer {
            true => (ring.last_head(), 0),
            false => {
                let from = seen.own.load(Ordering::Relaxed);
                // What a thread has seen that waited was not checked.
                let said = seen.said();
                let is_possible = used(said, from, bytes).is_ok();
                (from, if is_possible { said } else { seen.peer.load(Ordering::Relaxed) })
            }
        };
        let place = ring.place(bytes);
        let left = match used(tail, from, bytes) {
            Ok(len) if tail >= known => Ok(LeftoverRange { from, len, place, is_broken: false }),
            _ if self.is_observer => Err(Stop::Violation),
            // These are the bytes that were seen, of which the program may have been told.
            _ => {
                let len = known.saturating_sub(from) as usize;
                Ok(LeftoverRange { from, len, place, is_broken: true })
            }
        };
        *seen.left.get_or_init(|| left)
    }

    /// Returns the number of bytes of the frozen own ring that the peer has not read: they belong
    /// into the kernel, before any other byte. The answer is always the same. Writer lock, at the
    /// first time at least.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn own_leftover(&self) -> Result<usize, Stop> {
        Ok(self.own_left()?.len)
    }

    /// Returns the memory of the own leftover from its byte `skip` on, `max` bytes at most; nothing
    /// behind its end.
    pub fn own_leftover_at(&self, skip: usize, max: usize) -> Leftover<'_> {
        fault::point("stream.flushing");
        let mut parts = [None; LEFTOVER_PARTS];
        let Ok(left) = self.own_left() else { return parts };
        let wanted = left.len.saturating_sub(skip).min(max);
        let mut done = 0;
        for part in &mut parts {
            if done >= wanted {
                break;
            }
            let position = left.from + (skip + done) as u64;
            *part = self.span(self.side, position, left.place, wanted - done);
            done += part.map_or(wanted, |span| span.len());
        }
        parts
    }

    /// Copies the own leftover from its byte `skip` on; returns the number of bytes, 0 at its end.
    pub fn copy_own_leftover(&self, skip: usize, buf: &mut [u8]) -> usize {
        fault::point("stream.flushing");
        self.own_left().map_or(0, |left| self.copy_left(self.side, left, skip, buf))
    }

    /// Notes how many bytes this side's kernel has sent in all, before [`Stream::begin_flush`]: of
    /// a connection whose bytes need not have arrived when they are sent.
    pub fn note_sent(&self, bytes: u64) {
        self.out_ring().writer.sent.store(bytes.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns how many bytes the peer's kernel had sent before the flush, if the peer has begun it
    /// and has noted that.
    pub fn sent_before_flush(&self) -> Option<u64> {
        // The peer's state is looked at first, by an acquire that pairs with `begin_flush`.
        let says = self.peer_flushes();
        let sent = self.in_ring().writer.sent.load(Ordering::Relaxed);
        sent.checked_sub(1).filter(|_| says)
    }

    /// Begins the flush: from now on this side puts its leftover into the kernel. Returns the
    /// number of bytes that the peer has taken from the ring before that: they count as done.
    pub fn begin_flush(&self) -> usize {
        let taken = self.out_ring().begin_flush();
        usize::try_from(taken).unwrap_or(usize::MAX).min(self.own_leftover().unwrap_or(0))
    }

    /// Tells the peer that the first `bytes` of the own leftover are in the kernel, and that no
    /// more follow. The state must be published for an empty leftover, too.
    pub fn set_flushed(&self, bytes: usize) {
        // SYNC: release, so that a reader of the state finds the bytes in the kernel; pairs with
        // `peer_flush`.
        let ends = if self.ends.load(Ordering::Relaxed) != 0 { ENDS } else { 0 };
        self.out_ring().writer.flushed.store(bytes as u64 | FLUSHED | ends, Ordering::Release);
        fault::point("stream.flushed");
    }

    /// Notes that this side ends in the kernel right after it has gone home: the peer learns that
    /// with [`Stream::set_flushed`].
    pub fn will_end(&self) {
        self.ends.store(1, Ordering::Relaxed);
    }

    /// Returns true if the peer is about to end its side in the kernel, or has done so.
    pub fn peer_ends(&self) -> bool {
        self.is_frozen() && self.peer_flush() & ENDS != 0
    }

    /// Returns true if this side has published the end of its flush, through any view of it.
    pub fn has_flushed(&self) -> bool {
        // SYNC: acquire, as in `peer_flush`.
        self.out_ring().writer.flushed.load(Ordering::Acquire) & FLUSHED != 0
    }

    /// Tells the peer that the first `bytes` of the own leftover are in the kernel, and that the
    /// rest follows as there is room: nothing else is written there before. The caller rings the
    /// peer next.
    pub fn set_flushing(&self, bytes: usize) {
        // SYNC: release, as in `set_flushed`; pairs with `peer_flush`.
        self.out_ring().writer.flushed.store(bytes as u64 | FLUSHING, Ordering::Release);
    }

    /// Returns the peer's state of its flush: the furthest that it has ever written. So a wait for
    /// news ends at last, whatever the peer writes.
    fn peer_flush(&self) -> u64 {
        // SYNC: acquire; pairs with the releases in `set_flushed` and `set_flushing`.
        let published = self.in_ring().writer.flushed.load(Ordering::Acquire);
        if published == self.peer_flush.load(Ordering::Relaxed) {
            return published;
        }
        self.peer_flush.fetch_max(published, Ordering::Relaxed).max(published)
    }

    /// Decodes the number of bytes in a state of the peer's flush.
    fn flushed_bytes(&self, state: u64) -> usize {
        let most = match self.reading.left.get() {
            Some(left) => left.map_or(0, |left| left.len),
            None => self.in_bytes() as usize,
        };
        usize::try_from(state & !FLUSH_BITS).unwrap_or(usize::MAX).min(most)
    }

    /// Returns how much of its leftover the peer has put into the kernel so far, if it has
    /// published that the rest follows.
    pub fn peer_flushing(&self) -> Option<usize> {
        let state = self.peer_flush();
        let follows = self.is_frozen() && state & (FLUSHED | FLUSHING) == FLUSHING;
        follows.then(|| self.flushed_bytes(state))
    }

    /// Returns how much of its leftover the peer claims to have put into the kernel; `None` if
    /// it has published nothing, and 0 if it has broken the rules.
    pub fn peer_flushed(&self) -> Option<usize> {
        if self.reading.left.get().is_some_and(|left| left.is_ok_and(|left| left.is_broken)) {
            return Some(0);
        }
        let state = self.peer_flush();
        (self.is_frozen() && state & FLUSHED != 0).then(|| self.flushed_bytes(state))
    }

    /// Returns true if the peer has begun to flush, or has written another state in which this side
    /// can take nothing from the ring any more.
    pub fn peer_flushes(&self) -> bool {
        self.peer_flush() & (FLUSHED | FLUSHING | BEGUN) != 0
    }

    /// Returns a number that changes whenever the peer writes a new state of its flush.
    pub fn flush_news(&self) -> u64 {
        self.peer_flush()
    }

    /// Returns the number of bytes of the frozen other ring that this side had not read: they come
    /// through the kernel. The answer is always the same. Reader lock, at the first time at least.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn peer_leftover(&self) -> Result<usize, Stop> {
        Ok(self.peer_left()?.len)
    }

    /// Returns the number of bytes that this side has read, by the frozen other ring's words: for a
    /// process that has not read them itself.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn read_so_far(&self) -> Result<u64, Stop> {
        Ok(self.peer_left()?.from)
    }

    /// Copies the peer's leftover from its byte `skip` on, which the peer could not flush because
    /// it died.
    pub fn copy_unflushed(&self, skip: usize, buf: &mut [u8]) -> usize {
        self.peer_left().map_or(0, |left| self.copy_left(1 - self.side, left, skip, buf))
    }

    /// Takes the `len` bytes of the peer's leftover from `skip` on, which were copied: they do not
    /// come through the kernel. Returns false if the peer has begun to flush: then they do. Reader
    /// lock.
    pub fn take_unflushed(&self, skip: usize, len: usize) -> bool {
        self.in_ring().take_left(skip as u64, (skip + len) as u64)
    }

    fn copy_left(&self, ring: usize, left: LeftoverRange, skip: usize, buf: &mut [u8]) -> usize {
        let wanted = left.len.saturating_sub(skip).min(buf.len());
        let mut copied = 0;
        while copied < wanted {
            let position = left.from + (skip + copied) as u64;
            let Some(span) = self.span(ring, position, left.place, wanted - copied) else { break };
            match span.copy_to(&mut buf[copied..]) {
                0 => break,
                more => copied += more,
            }
        }
        copied
    }
}
