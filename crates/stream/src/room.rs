//! Room in the own ring: its near part and its far part, and how much of each is free.
//!
//! Not here: writing (`write`), the ring's words (`ring`), and waiting (`stream`).

use crate::cache::NO_TURN;
use crate::ring::{NEAR_MAX, Stop, used};
use crate::stream::Stream;
use core::sync::atomic::Ordering;

impl Stream {
    /// Sets the size of the own ring's near part, which is used while the reader keeps up: `bytes`,
    /// a power of two, or the whole ring if that is no larger, or for 0. Before
    /// [`Stream::use_ring`]. Writer lock.
    pub fn set_near(&self, bytes: u32) {
        let all = self.out_bytes();
        let is_part = bytes.is_power_of_two() && bytes < all;
        let near = if is_part { bytes } else { all };
        self.writing.near.store(near.min(NEAR_MAX), Ordering::Relaxed);
    }

    /// Returns the bytes of the own ring's near part.
    pub fn near_bytes(&self) -> u32 {
        self.writing.near.load(Ordering::Relaxed)
    }

    pub(crate) fn has_turned(&self) -> bool {
        self.writing.turn.load(Ordering::Relaxed) != NO_TURN
    }

    /// Returns the bytes of the part of the own ring that is written to.
    pub(crate) fn part_bytes(&self) -> u32 {
        let near = self.near_bytes();
        if self.has_turned() { self.out_bytes() - near } else { near }
    }

    /// Goes on in the far part of the own ring, for a writer that finds the near part too full and
    /// does not want to wait. Returns false if there is none, or it is in use already. Writer lock.
    pub fn turn(&self) -> bool {
        if !self.may_turn() || !self.uses_ring() {
            return false;
        }
        let tail = self.writing.own.load(Ordering::Relaxed);
        self.writing.turn.store(tail, Ordering::Relaxed);
        self.out_ring().set_turn(tail);
        true
    }

    fn may_turn(&self) -> bool {
        !self.has_turned() && self.near_bytes() < self.out_bytes()
    }

    /// Returns the number of bytes that can be written now, in the far part of the ring if need be.
    /// Otherwise like [`Stream::room`].
    ///
    /// # Errors
    /// Those of [`Stream::room`].
    pub fn room_in_all(&self) -> Result<usize, Stop> {
        let room = self.room()?;
        let far = (self.out_bytes() - self.near_bytes()) as usize;
        Ok(if self.may_turn() { room.max(far) } else { room })
    }

    /// Returns the number of bytes that can be written now, in the part of the ring that is written
    /// to. Looks at the peer's position. Writer lock.
    ///
    /// # Errors
    /// [`Stop::NotOnRing`], [`Stop::Frozen`], [`Stop::Violation`].
    pub fn room(&self) -> Result<usize, Stop> {
        if !self.uses_ring() {
            return Err(Stop::NotOnRing);
        }
        // The tail shows if the ring is frozen.
        self.out_ring().tail()?;
        self.look_for_room(self.writing.own.load(Ordering::Relaxed))
    }

    fn look_for_room(&self, tail: u64) -> Result<usize, Stop> {
        let seen = &self.writing;
        let said = seen.said();
        let head = self.out_ring().head()?;
        used(tail, head, self.out_bytes())?;
        // A consumed byte cannot be put back.
        if head < said {
            return Err(Stop::Violation);
        }
        seen.peer.store(head, Ordering::Relaxed);
        Ok(self.room_behind(tail, head))
    }

    /// Returns true if a write may have a result: there are `room` bytes of room, or something has
    /// ended. For a thread that waits, without any lock, like [`Stream::may_read`].
    pub fn may_write(&self, room: usize) -> bool {
        if !self.uses_ring() {
            return true;
        }
        let tail = self.writing.own.load(Ordering::Relaxed);
        match self.out_ring().tail().and_then(|_| self.out_ring().head()) {
            // An impossible position ends the wait, too: the write reports it.
            Ok(head) if head <= tail && self.room_behind(tail, head) < room => false,
            Ok(head) => {
                // SYNC: release; pairs with the load in `said`.
                self.writing.sighted.fetch_max(head, Ordering::Release);
                true
            }
            Err(_) => {
                self.saw_end();
                true
            }
        }
    }

    /// Returns the room in the part that is written to, if the reader has come to `head`.
    #[inline]
    fn room_behind(&self, tail: u64, head: u64) -> usize {
        let turn = self.writing.turn.load(Ordering::Relaxed);
        // Bytes before the turn lie in the near part, and take no room in the far one.
        let from = if turn == NO_TURN { head } else { head.max(turn) };
        let there = tail.saturating_sub(from);
        u64::from(self.part_bytes()).saturating_sub(there) as usize
    }

    /// Returns the known room for `wanted` bytes; looks at the peer's position only if that is not
    /// enough.
    #[inline]
    pub(crate) fn room_for(&self, tail: u64, wanted: usize) -> Result<usize, Stop> {
        let room = self.room_behind(tail, self.writing.peer.load(Ordering::Relaxed));
        if room >= wanted { Ok(room) } else { self.look_for_room(tail) }
    }
}
