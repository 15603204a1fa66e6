//! The way home: freezing, and what is left in the rings (`docs/understand/streams.md`, "Going
//! home").
//!
//! Not here: sending it (the caller does), and the words themselves ([`crate::ring`]).
//!
//! # What a hostile peer can do
//! Every shared word may change after the freeze as before it. So what is left over is decided
//! once, from one look at the peer's position and from our own private one, and kept in private
//! memory ([`Left`]): a leftover has a length, and whoever goes through it ends. If the peer's
//! position cannot be, its own bytes are those that were seen before, which we may have told our
//! program of, and we owe it none.

use crate::ring::{BEGUN, FLUSH_BITS, FLUSHED, FLUSHING, Stop, used};
use crate::stream::{DONE, LIVES, Left, SEEN, Stream};
use core::sync::atomic::Ordering;
use sojourn_shm::{Span, fault};

/// Each part of a ring, the near and the far one, has bytes up to its end and from its beginning.
pub const LEFTOVER_PARTS: usize = 4;

/// Where a leftover lies, in its order.
pub type Leftover<'a> = [Option<Span<'a>>; LEFTOVER_PARTS];

impl Stream {
    /// Ends all progress in both rings. Any side, any thread, any number of times; wakes nobody
    /// ([`Stream::notify_peer`], [`Stream::wake_reader`], [`Stream::wake_writer`]).
    ///
    /// Whoever gets [`Stop::Frozen`] calls this too before it looks at a leftover: the peer may
    /// have died half-way.
    pub fn freeze(&self) {
        self.out_ring().freeze();
        fault::point("stream.freezing");
        self.in_ring().freeze();
        // SYNC: release; pairs with the acquire in `is_settled`.
        self.end.store(DONE, Ordering::Release);
        fault::point("stream.frozen");
    }

    /// Whether a freeze has at least begun. Once it has it always has.
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

    /// Whether the freeze is over: what is left is decided.
    fn is_settled(&self) -> bool {
        // SYNC: acquire; pairs with the release in `freeze`.
        self.end.load(Ordering::Acquire) == DONE
    }

    /// This process carries the session of this stream from now on, as [`crate::Ledger::claim`] has
    /// it; but not one that is called home already. Whoever freezes it and must know whether it is
    /// carried asks under the lock that this is called under, afterwards.
    pub fn claim(&self) -> bool {
        !self.is_frozen() && self.ledger().claim()
    }

    /// What the peer has not read of the own ring.
    fn own_left(&self) -> Result<Left, Stop> {
        let seen = &self.writing;
        if let Some(left) = seen.left.get() {
            return *left;
        }
        let (ring, bytes) = (self.out_ring(), self.out_bytes());
        if !self.is_settled() {
            ring.positions()?;
        }
        let head = ring.last_head();
        let (tail, least, place) = match self.is_told {
            true => (ring.last_tail(), 0, ring.place(bytes)),
            false => {
                let own = seen.own.load(Ordering::Relaxed);
                (own, seen.peer.load(Ordering::Relaxed), self.own_place())
            }
        };
        let left = match used(tail, head, bytes) {
            Ok(len) if head >= least => Ok(Left { from: head, len, place, is_broken: false }),
            _ => Err(Stop::Violation),
        };
        *seen.left.get_or_init(|| left)
    }

    /// What this side has not read of the other ring.
    fn peer_left(&self) -> Result<Left, Stop> {
        let seen = &self.reading;
        if let Some(left) = seen.left.get() {
            return *left;
        }
        let (ring, bytes) = (self.in_ring(), self.in_bytes());
        if !self.is_settled() {
            ring.positions()?;
        }
        let tail = ring.last_tail();
        let (from, known) = match self.is_told {
            true => (ring.last_head(), 0),
            false => (seen.own.load(Ordering::Relaxed), seen.peer.load(Ordering::Relaxed)),
        };
        let place = ring.place(bytes);
        let left = match used(tail, from, bytes) {
            Ok(len) if tail >= known => Ok(Left { from, len, place, is_broken: false }),
            _ if self.is_told => Err(Stop::Violation),
            // As many as there were when somebody last looked: they have been told of.
            _ => {
                let len = known.saturating_sub(from) as usize;
                Ok(Left { from, len, place, is_broken: true })
            }
        };
        *seen.left.get_or_init(|| left)
    }

    /// Bytes of the frozen own ring that the peer has not read: they belong into the kernel, before
    /// anything else is written there. Always the same answer. Writer lock, at the first time at
    /// least.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn own_leftover(&self) -> Result<usize, Stop> {
        Ok(self.own_left()?.len)
    }

    /// Where the own leftover lies from its byte `skip` on, `max` bytes at most. `None` behind its
    /// end.
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

    /// Copies the own leftover from its byte `skip` on; answers how many bytes, 0 at its end.
    pub fn copy_own_leftover(&self, skip: usize, buf: &mut [u8]) -> usize {
        fault::point("stream.flushing");
        self.own_left().map_or(0, |left| self.copy_left(self.side, left, skip, buf))
    }

    /// From now on this side puts its leftover into the kernel. How many of its bytes the peer has
    /// taken from the ring by itself before that: they count as done.
    pub fn begin_flush(&self) -> usize {
        let taken = self.out_ring().begin_flush();
        usize::try_from(taken).unwrap_or(usize::MAX).min(self.own_leftover().unwrap_or(0))
    }

    /// The first `bytes` of the own leftover are in the kernel. The peer takes it as done when that
    /// is all of it, so also an empty leftover must be told.
    pub fn set_flushed(&self, bytes: usize) {
        // SYNC: release, so that who sees it finds the bytes in the kernel; pairs with `said`.
        self.out_ring().writer.flushed.store(bytes as u64 | FLUSHED, Ordering::Release);
        fault::point("stream.flushed");
    }

    /// Whether this side has told so, by whichever view of it.
    pub fn has_flushed(&self) -> bool {
        // SYNC: acquire, as in `said`.
        self.out_ring().writer.flushed.load(Ordering::Acquire) & FLUSHED != 0
    }

    /// The first `bytes` of the own leftover are in the kernel, and the rest follows as there is
    /// room: nothing else is written there before. The caller rings the peer next.
    pub fn set_flushing(&self, bytes: usize) {
        // SYNC: release, as in `set_flushed`; pairs with `said`.
        self.out_ring().writer.flushed.store(bytes as u64 | FLUSHING, Ordering::Release);
    }

    /// What the peer says of its flush: the furthest that it has ever said. So who waits for news
    /// waits for less and less.
    fn said(&self) -> u64 {
        // SYNC: acquire; pairs with the releases in `set_flushed` and `set_flushing`.
        let says = self.in_ring().writer.flushed.load(Ordering::Acquire);
        if says == self.said.load(Ordering::Relaxed) {
            return says;
        }
        self.said.fetch_max(says, Ordering::Relaxed).max(says)
    }

    /// How many bytes of its leftover that is, of what the peer has said.
    fn count_said(&self, said: u64) -> usize {
        let most = match self.reading.left.get() {
            Some(left) => left.map_or(0, |left| left.len),
            None => self.in_bytes() as usize,
        };
        usize::try_from(said & !FLUSH_BITS).unwrap_or(usize::MAX).min(most)
    }

    /// How much of its leftover the peer has put into the kernel so far, if it said that the rest
    /// follows.
    pub fn peer_flushing(&self) -> Option<usize> {
        let said = self.said();
        let follows = self.is_frozen() && said & (FLUSHED | FLUSHING) == FLUSHING;
        follows.then(|| self.count_said(said))
    }

    /// How much of its leftover the peer says it has put into the kernel, `None` if it has not said
    /// anything. None of it, of one that has broken the rules.
    pub fn peer_flushed(&self) -> Option<usize> {
        if self.reading.left.get().is_some_and(|left| left.is_ok_and(|left| left.is_broken)) {
            return Some(0);
        }
        let said = self.said();
        (self.is_frozen() && said & FLUSHED != 0).then(|| self.count_said(said))
    }

    /// Whether the peer has begun to flush, or has said something else that this side can take
    /// nothing from the ring any more for.
    pub fn peer_flushes(&self) -> bool {
        self.said() & (FLUSHED | FLUSHING | BEGUN) != 0
    }

    /// A number that changes whenever the peer says something new of its flush.
    pub fn flush_news(&self) -> u64 {
        self.said()
    }

    /// Bytes of the frozen other ring that this side had not read: they come through the kernel.
    /// Always the same answer. Reader lock, at the first time at least.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn peer_leftover(&self) -> Result<usize, Stop> {
        Ok(self.peer_left()?.len)
    }

    /// Bytes that this side has read, as the frozen other ring says: for somebody who has not read
    /// them himself.
    ///
    /// # Errors
    /// [`Stop::NotFrozen`], [`Stop::Violation`].
    pub fn read_so_far(&self) -> Result<u64, Stop> {
        Ok(self.peer_left()?.from)
    }

    /// Copies the peer's leftover from its byte `skip` on: what it could not flush because it died.
    pub fn copy_unflushed(&self, skip: usize, buf: &mut [u8]) -> usize {
        self.peer_left().map_or(0, |left| self.copy_left(1 - self.side, left, skip, buf))
    }

    /// The `len` bytes of the peer's leftover from `skip` on, which were copied, are read: they do
    /// not come through the kernel. Reader lock. False: the peer has begun to flush, and they do.
    pub fn take_unflushed(&self, skip: usize, len: usize) -> bool {
        self.in_ring().take_left(skip as u64, (skip + len) as u64)
    }

    fn copy_left(&self, ring: usize, left: Left, skip: usize, buf: &mut [u8]) -> usize {
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
