//! Where each direction of a session stands.
//!
//! Not here: the session (`session`), and what takes a direction from one phase to the next
//! (`join`, `send`, `receive`, `home`). Read `docs/understand/streams.md` first.

use crate::session::peeked::Peeked;
use sojourn_pump::Waiting;
use sojourn_stream::Stream;
use std::sync::Arc;

/// Values of [`Session::tx_state`](crate::Session).
pub(crate) mod switch {
    pub(crate) const KERNEL: u32 = 0;
    pub(crate) const UNDER_WAY: u32 = 1;
    pub(crate) const RING: u32 = 2;
}

/// How the sending direction stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TxPhase {
    /// Not joined, or home again: the kernel.
    #[default]
    Home,
    /// Joined; still the kernel, until the conditions for the switch hold.
    Joined,
    /// The ring.
    Ring,
    /// Frozen; what the peer has not read goes to the kernel as there is room, and nothing else
    /// before.
    Flushing,
}

/// How the receiving direction stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RxPhase {
    /// Not joined, or home again: the kernel.
    #[default]
    Home,
    /// Joined; bytes still come through the kernel.
    Joined,
    /// The ring.
    Ring,
    /// Frozen; the peer still owes bytes to the kernel.
    Residue,
    /// Frozen; the peer ended with bytes unread, which the next receive must say.
    Reset,
}

/// The sending direction.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pub(crate) stream: Option<Arc<Stream>>,
    pub(crate) phase: TxPhase,
    /// In `Flushing`: bytes of the leftover that are in the kernel.
    pub(crate) flushed: usize,
}

/// The receiving direction.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    pub(crate) stream: Option<Arc<Stream>>,
    pub(crate) phase: RxPhase,
    /// In `Residue`: bytes read from the kernel, then from the ring, since the freeze.
    pub(crate) since_freeze: usize,
    /// In `Residue`: bytes that were in the kernel before those that the peer owes.
    pub(crate) before_owed: usize,
    /// In `Residue`: `before_owed` is what was in the kernel when the peer was putting there what
    /// it owes.
    pub(crate) is_unsure: bool,
    /// In `Residue`: what the peer had said of its flush before the kernel was last looked at
    /// (`Stream::flush_news`).
    pub(crate) seen_news: u64,
    /// Ends in `Reset`.
    pub(crate) is_reset: bool,
    /// In `Residue`: how much of what it owed the peer has put into the kernel, where it died and
    /// never says so.
    pub(crate) flushed: Option<usize>,
    /// In `Ring`, carried: the kernel had bytes when it was given up. They were here, and come
    /// first in the ring.
    pub(crate) is_promised: bool,
    /// A UDP socket's queue, while this process carries it.
    pub(crate) datagrams: Option<Waiting>,
    /// The kernel was asked last, where both had something: see `datagrams`.
    pub(crate) was_kernels_turn: bool,
    /// How many they were.
    pub(crate) promised: usize,
    /// What the program has looked at in the ring and not taken.
    pub(crate) peeked: Peeked,
}
