//! `FIONREAD` of a session on this host: the bytes in the ring and those in the kernel, each
//! counted once, also while a move takes them from the one to the other.
//!
//! A program that has heard of bytes and counts none takes the stream for ended. Not here: the
//! count of a session with another host (`remote::options`), and which bytes the ring has
//! (`session::owed`).

use crate::host::lock::lock;
use crate::session::Session;
use crate::session::directions::RxPhase;
use core::mem::{Discriminant, discriminant};

/// The most looks. Each move makes a second look necessary, and nothing moves eight times within
/// one call.
const LOOKS: usize = 8;

/// The place of a session's bytes. While it stays the same none goes from the ring to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    phase: Discriminant<RxPhase>,
    flush_news: u64,
}

impl Session {
    /// Counts the bytes that `FIONREAD` must add to the kernel's count, for which `ask_kernel`
    /// asks, perhaps several times. Waits no longer than a receive that must not wait.
    pub(crate) fn queued_beside(&self, mut ask_kernel: impl FnMut()) -> usize {
        for _ in 1..LOOKS {
            let before = self.place_of_input();
            ask_kernel();
            let more = self.input_queue();
            if before.is_some() && before == self.place_of_input() {
                return more;
            }
            // In the middle of a flush bytes are in neither place.
            if before.is_none() && !self.wait_for_flush(false) {
                break;
            }
        }
        ask_kernel();
        self.input_queue()
    }

    /// Returns where the bytes are; `None` while the peer is in its flush and does not say how far
    /// it came. Follows a peer that has left, as a receive does.
    fn place_of_input(&self) -> Option<Place> {
        let stream = self.stream();
        let phase = || lock(&self.rx).phase;
        let uses_ring = |phase| matches!(phase, RxPhase::Ring | RxPhase::Joined);
        if stream.as_ref().is_some_and(|stream| stream.is_frozen()) && uses_ring(phase()) {
            self.attend();
        }
        let phase = phase();
        let flush_news = stream.as_ref().map_or(0, |stream| stream.flush_news());
        let is_hidden = match (&stream, phase) {
            (Some(stream), RxPhase::Residue(residue)) => {
                stream.peer_flushes()
                    && residue.flushed(stream).is_none()
                    && stream.peer_flushing().is_none()
            }
            _ => false,
        };
        (!is_hidden).then(|| Place { phase: discriminant(&phase), flush_news })
    }
}
