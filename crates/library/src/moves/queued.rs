//! `FIONREAD` of a session on this host: the bytes in the ring and those in the kernel, each
//! counted once, also while a move takes them from the one to the other.
//!
//! A program that has heard of bytes and counts none takes the stream for ended. Not here: the
//! count of a session with another host (`remote::options`), and which bytes the ring has
//! (`session::owed`).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::OwnSession;
use crate::session::directions::{RxPhase, TxPhase};
use core::mem::{Discriminant, discriminant};
use sojourn_session::KindT;
use sojourn_shm::deadline::now_ns;

/// Looks without a pause. Each move makes a second look necessary.
const LOOKS: usize = 8;
/// The longest time of further looks, with pauses (nanoseconds): a peer that loses its processor in
/// the middle of its flush shows the bytes in neither place, and to count none would be wrong.
const LOOKS_NS: u64 = 2_000_000;

/// The place of a session's bytes. While it stays the same none goes from the ring to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    phase: Discriminant<RxPhase>,
    flush_news: u64,
    /// The phase of the sending direction, and how much of its leftover the kernel has.
    sends: TxPhase,
    flushed: usize,
}

impl OwnSession<'_> {
    /// Counts the bytes that `FIONREAD` must add to the kernel's count, for which `ask_kernel`
    /// asks, perhaps several times. Waits no longer than a receive that must not wait.
    pub(crate) fn queued_beside(self, mut ask_kernel: impl FnMut()) -> usize {
        let (mut looks, start) = (0, now_ns());
        while looks < LOOKS || now_ns().saturating_sub(start) < LOOKS_NS {
            looks += 1;
            if looks > LOOKS {
                std::thread::yield_now();
            }
            let Some(before) = self.place_of_input() else {
                if !self.wait_for_flush(false)
                    && let Some(more) = self.beside_a_flush(&mut ask_kernel)
                {
                    return more;
                }
                continue;
            };
            ask_kernel();
            let more = self.input_queue();
            if self.place_of_input() == Some(before) {
                return more;
            }
        }
        ask_kernel();
        self.input_queue()
    }

    /// Counts the same in the middle of a flush, when bytes may be in neither place: what the
    /// kernel does not have by now is still to come. `None`: the flush has gone on meanwhile.
    fn beside_a_flush(self, ask_kernel: &mut impl FnMut()) -> Option<usize> {
        let stream = self.stream()?;
        let RxPhase::Residue(residue) = lock(&self.rx).phase else { return None };
        let owed = stream.peer_leftover().ok().filter(|_| !residue.is_unsure)?;
        let all = residue.before_owed + owed.saturating_sub(residue.since_freeze);
        let kernels = kernel::input_queue(self.number());
        ask_kernel();
        let stays = self.place_of_input().is_none();
        let same = kernel::input_queue(self.number()) == kernels;
        (stays && same).then(|| all.saturating_sub(kernels))
    }

    /// Returns where the bytes are; `None` while the peer is in its flush and does not say how far
    /// it came. Follows a peer that has left, as a receive does.
    fn place_of_input(self) -> Option<Place> {
        let stream = self.stream();
        let phase = || lock(&self.rx).phase;
        let uses_ring = |phase| matches!(phase, RxPhase::Ring | RxPhase::Joined);
        let writes = || self.kind() == KindT::Pipe && lock(&self.tx).phase == TxPhase::Ring;
        let is_frozen = stream.as_ref().is_some_and(|stream| stream.is_frozen());
        if is_frozen && (uses_ring(phase()) || writes()) {
            self.attend();
        }
        let phase = phase();
        let (sends, flushed) = {
            let tx = lock(&self.tx);
            (tx.phase, tx.flushed)
        };
        let flush_news = stream.as_ref().map_or(0, |stream| stream.flush_news());
        let is_hidden = match (&stream, phase) {
            (Some(stream), RxPhase::Residue(residue)) => residue.is_flush_hidden(stream),
            _ => false,
        };
        (!is_hidden).then(|| Place { phase: discriminant(&phase), flush_news, sends, flushed })
    }
}
