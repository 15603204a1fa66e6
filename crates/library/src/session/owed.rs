//! What a peer owes a receiver whose stream is frozen, and where it is: in the ring, or in the
//! kernel by now.
//!
//! Pure questions. Not here: receiving it (`residue`). Read `docs/understand/streams.md`, "Going
//! home".

use crate::session::directions::Receiver;
use sojourn_stream::Stream;

/// In `Residue`: how much of what it owes the peer has put into the kernel, as far as is known.
pub(crate) fn flushed(stream: &Stream, rx: &Receiver) -> Option<usize> {
    rx.flushed.or_else(|| stream.peer_flushed())
}

/// In `Residue`: whether bytes can be had from the ring now.
pub(crate) fn rest_is_here(stream: &Stream, rx: &Receiver) -> bool {
    !rx.is_unsure && rx.before_owed == 0 && rest_in_ring(stream, rx) > 0
}

/// In `Residue`: bytes that are owed and come from the ring, as far as is known. The kernel has the
/// others, or is about to have them.
pub(crate) fn rest_in_ring(stream: &Stream, rx: &Receiver) -> usize {
    let owed = stream.peer_leftover().unwrap_or(0);
    let elsewhere = match flushed(stream, rx) {
        Some(flushed) => flushed.max(rx.since_freeze),
        None if stream.peer_flushes() => owed,
        None => rx.since_freeze,
    };
    owed.saturating_sub(elsewhere)
}
