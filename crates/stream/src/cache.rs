//! What one side of a stream remembers of a ring, in private memory.
//!
//! Not here: the words in shared memory (`ring`), the decisions (`write`, `read`, `home`).

use crate::bell::Sleepers;
use crate::ring::{Geometry, Stop};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

/// The value of [`RingCache::turn`] while the ring has no turn.
pub(crate) const NO_TURN: u64 = u64::MAX;

/// A side's private memory of one ring. It saves looks at the peer's line, and trust in shared
/// words, which the peer can write at any time. A side never reads back from there what is its own,
/// and the peer cannot unsay what it was once seen to say.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct RingCache {
    /// The own position in this ring.
    pub(crate) own: AtomicU64,
    /// The peer's position, as last seen under the direction's lock: possible, and never less than
    /// before.
    pub(crate) peer: AtomicU64,
    /// The peer's position, as last seen without that lock by a thread of this side that waited. It
    /// was not checked.
    pub(crate) sighted: AtomicU64,
    /// This direction has switched to the ring, as far as this side knows.
    pub(crate) uses_ring: AtomicBool,
    /// As reader: this side has consented.
    pub(crate) consents: AtomicBool,
    /// As writer: the place of this side's bytes, and the position from which on the writer looks
    /// whether the ring can be rewound.
    pub(crate) skew: AtomicU32,
    pub(crate) near: AtomicU32,
    /// [`NO_TURN`] if the bytes lie in the near part.
    pub(crate) turn: AtomicU64,
    pub(crate) rewinds_at: AtomicU64,
    /// The processor that was last published to the peer.
    pub(crate) published_cpu: AtomicU32,
    /// As writer: the position up to which this side has told of arrivals. As reader: how many
    /// publications it has heard of, and the position up to which it may have.
    pub(crate) told: AtomicU64,
    pub(crate) heard: AtomicU32,
    /// This side's sleepers.
    pub(crate) sleepers: Sleepers,
    /// The leftover of the frozen ring, decided once.
    // FORK: one process's; a value that is known already fills it.
    pub(crate) left: OnceLock<Result<LeftoverRange, Stop>>,
}

impl RingCache {
    /// Returns the peer's position as last seen by any thread, possible or not.
    #[inline]
    pub(crate) fn said(&self) -> u64 {
        // SYNC: acquire; pairs with the updates in `may_read` and `may_write`.
        let sighted = self.sighted.load(Ordering::Acquire);
        self.peer.load(Ordering::Relaxed).max(sighted)
    }
}

/// The leftover of a frozen ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftoverRange {
    /// The position of its first byte.
    pub(crate) from: u64,
    pub(crate) len: usize,
    pub(crate) place: Geometry,
    /// The writer has written positions that are impossible: it is not relied on to flush anything.
    pub(crate) is_broken: bool,
}
