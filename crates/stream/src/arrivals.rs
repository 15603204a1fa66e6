//! The time at which each slot of an inbox was posted, so that a waiter of many reports them in the
//! order in which they came.
//!
//! Read `bits` first. Not here: the clock ([`crate::Inbox`] reads it), and the use of the order.
//!
//! # Theory of operation
//! A poster notes the time, then sets its bit; the taker clears the bit, then takes the time. The
//! first post since the last take counts: a later one finds a time there and leaves it. A post that
//! comes between the two steps of the taker can lose its time, and a poster that dies between its
//! two steps leaves a time that is too early; [`NO_TIME`] stands for "since the last take". A time
//! is a peer's word: it decides where the peer's own slots stand among the others, and nothing
//! else. Model: `tests/loom_inbox.rs`.

use crate::bits::SLOTS;
use sojourn_shm::{AtomicU64, Ordering};

/// The time of a slot for which no post has noted one since the last take.
pub const NO_TIME: u64 = 0;

/// A time for each slot, in shared memory.
#[repr(transparent)]
#[derive(Debug)]
pub struct Arrivals([AtomicU64; SLOTS as usize]);

impl Arrivals {
    /// Makes a table without times.
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(NO_TIME)))
    }

    /// Notes the time for a poster that is about to set the bit of `slot`, unless an earlier post's
    /// time is there. Slots beyond [`SLOTS`] are ignored.
    pub fn note(&self, slot: u32, now_ns: u64) {
        if let Some(time) = self.0.get(slot as usize) {
            // SYNC: relaxed; the bit that is set next publishes it, and pairs with the taker's swap
            // of the bits. No load before it: that could find a time which has been taken.
            let _ = time.compare_exchange(NO_TIME, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes the time of the first post of `slot`, or [`NO_TIME`]. The taker has cleared the bit
    /// before.
    pub fn take(&self, slot: u32) -> u64 {
        let time = self.0.get(slot as usize);
        // SYNC: relaxed; the taker's swap of the bits, which was before, pairs with the poster's
        // update.
        time.map_or(NO_TIME, |time| time.swap(NO_TIME, Ordering::Relaxed))
    }
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new()
    }
}
