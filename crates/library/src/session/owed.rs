//! The bytes that a peer owes a receiver whose stream is frozen, and their place: the ring, or the
//! kernel by now.
//!
//! These are pure functions of the stream's words and the receiver's counts. Not here: receiving
//! the bytes (`moves::residue`). Read `docs/understand/streams.md`, "Going home".

use crate::session::directions::Receiver;
use sojourn_stream::Stream;

/// In `Residue`: gives the bytes owed that the peer has put into the kernel, as far as is known.
pub(crate) fn flushed(stream: &Stream, rx: &Receiver) -> Option<usize> {
    rx.flushed.or_else(|| stream.peer_flushed())
}

/// In `Residue`: returns true if bytes can be read from the ring now.
pub(crate) fn rest_is_here(stream: &Stream, rx: &Receiver) -> bool {
    !rx.is_unsure && rx.before_owed == 0 && rest_in_ring(stream, rx) > 0
}

/// In `Residue`: counts the owed bytes that come from the ring, as far as is known. The others are
/// in the kernel, or are about to be.
pub(crate) fn rest_in_ring(stream: &Stream, rx: &Receiver) -> usize {
    let owed = stream.peer_leftover().unwrap_or(0);
    let elsewhere = match flushed(stream, rx) {
        Some(flushed) => flushed.max(rx.since_freeze),
        // The peer has begun its flush: no byte may be taken from the ring until it says how far it
        // came.
        None if stream.peer_flushes() => owed,
        None => rx.since_freeze,
    };
    owed.saturating_sub(elsewhere)
}
