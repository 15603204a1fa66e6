//! The state of each direction of a session.
//!
//! Not here: the session (`session`), and the steps from one phase to the next (`moves::join`,
//! `io::send`, `io::receive`, `moves::home`). Read `docs/understand/streams.md` first.

use crate::session::peeked::Peeked;
use sojourn_pump::Waiting;
use sojourn_stream::Stream;
use std::sync::Arc;

/// Values of [`Session::tx_state`](crate::Session): the kernel's, a switch under way, the ring's.
pub(crate) mod switch {
    pub(crate) const KERNEL: u32 = 0;
    pub(crate) const UNDER_WAY: u32 = 1;
    pub(crate) const RING: u32 = 2;
}

/// The phase of the sending direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TxPhase {
    /// Not joined, or home again: sends go to the kernel.
    #[default]
    Home,
    /// Joined: sends go to the kernel until the conditions for the switch hold.
    Joined,
    /// Sends go to the ring.
    Ring,
    /// Frozen: the bytes that the peer has not read go to the kernel as it has room, before any
    /// other.
    Flushing,
}

/// The phase of the receiving direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RxPhase {
    /// Not joined, or home again: the kernel serves receives.
    #[default]
    Home,
    /// Joined: bytes still come through the kernel.
    Joined,
    /// Bytes come through the ring.
    Ring,
    /// Frozen: the peer still owes bytes, which come through the kernel or from the ring.
    Residue(Residue),
    /// Frozen: the peer ended with bytes unread, and the next receive returns `ECONNRESET`.
    Reset,
}

/// What is known of the bytes that the peer owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Residue {
    /// Bytes read from the kernel, then from the ring, since the freeze.
    pub(crate) since_freeze: usize,
    /// Bytes that were in the kernel before those that the peer owes.
    pub(crate) before_owed: usize,
    /// `before_owed` is not exact, because it was counted while the peer put owed bytes into the
    /// kernel.
    pub(crate) is_unsure: bool,
    /// The state of the peer's flush (`Stream::flush_news`) before the last look at the kernel.
    pub(crate) seen_news: u64,
    /// Owed bytes that a peer which has died, and cannot say so itself, had put into the kernel.
    pub(crate) flushed: Option<usize>,
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
    /// The direction ends in `Reset`.
    pub(crate) is_reset: bool,
    /// In `Ring`, of a remote session: bytes that the kernel had when it was given up. The program
    /// may know of them; they come first in the ring. 0 once bytes have come in the ring.
    pub(crate) promised: usize,
    /// The queue of a UDP socket, while this process runs its engine.
    pub(crate) datagrams: Option<Waiting>,
    /// Both queues had something, and the kernel's was asked last: see `io::datagrams`.
    pub(crate) was_kernels_turn: bool,
    /// The bytes in the ring that the program has peeked at and not taken.
    pub(crate) peeked: Peeked,
}

impl Receiver {
    /// Returns true if bytes that the kernel had when it was given up have not come yet.
    pub(crate) fn is_promised(&self) -> bool {
        let has_begun = |stream: &Arc<Stream>| stream.totals().received > 0;
        self.promised > 0 && !self.stream.as_ref().is_some_and(has_begun)
    }
}
