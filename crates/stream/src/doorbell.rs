//! The bell of an inbox: whether its owner must be woken through the event descriptor.
//!
//! Several threads of the owner may sleep, all on one event, which is level-triggered: once written
//! it wakes one after another, until a thread that has found no bit clears it. Unlike the bells of
//! a stream, the ringer does not take this one. Otherwise a thread that comes by, takes the bits
//! and goes away would leave the others asleep, and nobody would know of them. Instead:
//!
//! * `asleep` stays set while any thread is between [`Doorbell::announce`] and
//!   [`Doorbell::withdraw`];
//! * `rung` says that the event is written, so that posters write it once; the thread that clears
//!   the event clears `rung` *after* it, and then looks at the bits again.
//!
//! Not here: bits ([`crate::bits`]) and events ([`crate::Inbox`]). Model: `tests/loom_inbox.rs`.

use crate::sync::{Mutex, lock};
use sojourn_shm::{AtomicU32, AtomicU64, Ordering, fence};

/// The shared words.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Doorbell {
    /// Not 0: threads of the owner sleep.
    asleep: AtomicU32,
    unused: [AtomicU32; 31],
    /// Not 0: the event has been written since it was last cleared.
    rung: AtomicU32,
    /// The time (nanoseconds) at which the slot was posted that the event was written for, by a
    /// peer's word.
    rung_ns: AtomicU64,
}

/// Threads of this process between [`Doorbell::announce`] and [`Doorbell::withdraw`].
#[derive(Debug, Default)]
pub struct LocalSleepers(Mutex<u32>);

impl Doorbell {
    /// Makes a doorbell as it lies in a zeroed region.
    pub fn new() -> Self {
        let unused = core::array::from_fn(|_| AtomicU32::new(0));
        let rung = AtomicU32::new(0);
        Self { asleep: AtomicU32::new(0), unused, rung, rung_ns: AtomicU64::new(0) }
    }

    /// Returns true if a poster that has set its bit must write the event.
    pub fn must_ring(&self) -> bool {
        // SYNC: full fence; pairs with those in `announce` and `cleared`.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0 && self.ring()
    }

    /// Marks the event as written; returns true if it was not.
    pub fn ring(&self) -> bool {
        self.rung.load(Ordering::Relaxed) == 0 && self.rung.swap(1, Ordering::AcqRel) == 0
    }

    /// Notes that the event is about to be written for a slot that was posted at `now_ns`.
    pub fn rings_for(&self, now_ns: u64) {
        // SYNC: release; pairs with the acquire in `rung_ns`. A thread that has read the event sees
        // it anyway.
        self.rung_ns.store(now_ns, Ordering::Release);
    }

    /// Returns the time that [`Doorbell::rings_for`] noted last.
    pub fn rung_ns(&self) -> u64 {
        // SYNC: acquire; pairs with the release in `rings_for`.
        self.rung_ns.load(Ordering::Acquire)
    }

    /// Marks the event as written, whatever the word says.
    pub fn force(&self) {
        self.rung.store(1, Ordering::SeqCst);
    }

    /// Notes that the event has been emptied. The caller looks at the bits after this, and rings if
    /// there are any.
    pub fn cleared(&self) {
        self.rung.store(0, Ordering::Relaxed);
        // SYNC: full fence; pairs with the one in `must_ring`.
        fence(Ordering::SeqCst);
    }

    /// Announces that a thread is about to sleep; it looks once more after this.
    pub fn announce(&self, within: &LocalSleepers) {
        let mut within = lock(&within.0);
        *within += 1;
        self.asleep.store(1, Ordering::Relaxed);
        // SYNC: full fence; pairs with the one in `must_ring`.
        fence(Ordering::SeqCst);
    }

    /// Takes back the announcement of a thread that is awake.
    pub fn withdraw(&self, within: &LocalSleepers) {
        let mut within = lock(&within.0);
        *within = within.saturating_sub(1);
        if *within == 0 {
            self.asleep.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}
