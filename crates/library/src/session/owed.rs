//! The bytes that a peer owes a receiver whose stream is frozen, and their place: the ring, or the
//! kernel by now.
//!
//! These are pure functions of the stream's words and the receiver's counts. Not here: receiving
//! the bytes (`moves::residue`). Read `docs/understand/streams.md`, "Going home".

use crate::session::directions::Residue;
use sojourn_stream::Stream;

impl Residue {
    /// Counts bytes that were read from the kernel: the older ones come first.
    pub(crate) fn consume(&mut self, len: usize) {
        let before = len.min(self.before_owed);
        self.before_owed -= before;
        self.since_freeze += len - before;
    }

    /// Gives the bytes owed that the peer has put into the kernel, as far as is known.
    pub(crate) fn flushed(&self, stream: &Stream) -> Option<usize> {
        self.flushed.or_else(|| stream.peer_flushed())
    }

    /// Returns true while the peer is in its flush and has not said how far it came: then nobody
    /// knows which bytes are in the ring, which in the kernel, and which in neither.
    pub(crate) fn is_flush_hidden(&self, stream: &Stream) -> bool {
        stream.peer_flushes() && self.flushed(stream).is_none() && stream.peer_flushing().is_none()
    }

    /// Returns true if bytes can be read from the ring now.
    pub(crate) fn is_in_ring(&self, stream: &Stream) -> bool {
        !self.is_unsure && self.before_owed == 0 && self.rest_in_ring(stream) > 0
    }

    /// Counts the owed bytes that come from the ring, as far as is known. The others are in the
    /// kernel, or are about to be.
    pub(crate) fn rest_in_ring(&self, stream: &Stream) -> usize {
        let owed = stream.peer_leftover().unwrap_or(0);
        let elsewhere = match self.flushed(stream) {
            Some(flushed) => flushed.max(self.since_freeze),
            // The peer has begun its flush: no byte may be taken from the ring until it ends, even
            // if the peer says how far it came by now ([`Self::is_flush_hidden`] asks that).
            None if stream.peer_flushes() => owed,
            None => self.since_freeze,
        };
        owed.saturating_sub(elsewhere)
    }
}
