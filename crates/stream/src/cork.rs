//! Publications that do not wake the reader, while the writer's socket is corked (`TCP_CORK`,
//! tcp(7)).
//!
//! A program corks a socket, writes an answer in pieces, and uncorks it. In the kernel the pieces
//! travel as one. Here each is published at once, for a reader that looks, but a reader that sleeps
//! is woken once, when the cork is taken out. Not here: the socket's option (`sojourn-options`),
//! and the clock (the caller looks for what is overdue, [`Stream::look_at_cork`]).
//!
//! # Theory of operation
//! The state is this side's own. It goes from *corked* to *held back* when a wake-up is left out,
//! and back to *open* by the thread that uncorks; that one wakes the reader if the state was *held
//! back*. Both changes are atomic, so either the publication finds the cork taken out and wakes the
//! reader itself, or the thread that takes it out finds that it has to. A reader that goes to sleep
//! after the publication looks at the ring once more before that (`bell`), and finds the bytes.

use crate::stream::Stream;
use core::sync::atomic::Ordering;

/// A value of `Stream::cork`: every publication wakes the reader.
const OPEN: u32 = 0;
/// Publications do not wake the reader; none had to yet.
const CORKED: u32 = 1;
/// A sleeping reader has not been woken.
const HELD: u32 = 2;
/// The same since the last look.
const OVERDUE: u32 = 3;

/// Unread bytes from which on the reader is woken in any case: about as many as a full segment of
/// the loopback interface has, which no cork holds back.
const HELD_MAX: usize = 32 << 10;

impl Stream {
    /// Puts the writer's cork in, or takes it out. Taking it out wakes the reader for what was held
    /// back.
    pub fn set_corked(&self, is_corked: bool) {
        let state = &self.cork;
        if is_corked {
            let _ = state.compare_exchange(OPEN, CORKED, Ordering::SeqCst, Ordering::SeqCst);
        } else if state.swap(OPEN, Ordering::SeqCst) > CORKED {
            self.wake_peer(&self.out_ring().reader.bell);
        }
    }

    /// Wakes the reader for what is held back; the cork stays in.
    pub fn push(&self) {
        let state = &self.cork;
        let held = |state: u32| (state > CORKED).then_some(CORKED);
        if state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, held).is_ok() {
            self.wake_peer(&self.out_ring().reader.bell);
        }
    }

    /// Looks at the cork, and wakes the reader for what was held back at the last look already.
    /// Returns true if the cork is in.
    pub fn look_at_cork(&self) -> bool {
        let state = &self.cork;
        match state.load(Ordering::SeqCst) {
            OPEN => return false,
            OVERDUE => self.push(),
            _ => {
                let _ = state.compare_exchange(HELD, OVERDUE, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
        true
    }

    /// Returns true if a publication leaves a sleeping reader alone.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.cork.load(Ordering::SeqCst) != OPEN && self.hold_back()
    }

    #[cold]
    fn hold_back(&self) -> bool {
        // A small ring is not to fill up unheard.
        let max = HELD_MAX.min(self.out_bytes() as usize / 4);
        let held = |state: u32| (state != OPEN).then_some(state.max(HELD));
        self.pending() < max
            && self.cork.fetch_update(Ordering::SeqCst, Ordering::SeqCst, held).is_ok()
    }
}
