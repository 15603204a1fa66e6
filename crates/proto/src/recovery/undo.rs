//! Whether a reduction of the window was needless: all that was sent again had arrived before
//! (D-SACK, RFC 2883 and 3708), or the timestamps say that an original was acknowledged (Eifel, RFC
//! 3522).
//!
//! Not here: F-RTO, which finds it out another way. The rules are Linux's (`tcp_may_undo` and the
//! `tcp_try_undo_*` functions).

use super::Recovery;
use super::reduction::Undo;
use super::types::{Ack, State};

/// What an acknowledgement during fast recovery shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partial {
    /// Nothing about that.
    Loss,
    /// An original filled the gap; what was sent again is still under way.
    Overtaken,
    /// The reduction was taken back.
    Undone,
}

impl Recovery {
    /// Takes the last reduction back, unless a congestion mark asked for it as well. `absolve`:
    /// what is marked as lost is not.
    pub(super) fn undo_reduction(&mut self, absolve: bool) {
        if self.controller.undo(&mut self.window) {
            self.cwr_due = false;
            self.statistics.undone_total += 1;
        } else if self.is_reducing() {
            self.window.set(self.window.ssthresh);
        }
        self.undo = None;
        if absolve {
            self.board.absolve();
        }
        self.rack.reconsider();
    }

    /// Whether the acknowledgement answers an original, sent before anything was sent again.
    pub(super) fn answers_original(&self, ack: &Ack<'_>) -> bool {
        match (ack.echo, self.config.timestamp_unit, self.again_since) {
            // The echo is rounded down by less than a unit.
            (Some(echo), Some(unit), Some(since)) => echo + unit <= since,
            _ => false,
        }
    }

    fn may_undo(&self, ack: &Ack<'_>) -> bool {
        self.undo.is_some_and(|undo| undo.all_were_duplicates() || self.answers_original(ack))
    }

    /// All up to the recovery point is acknowledged. Gives whether the reduction was taken back.
    pub(super) fn try_undo_recovery(&mut self, ack: &Ack<'_>) -> bool {
        let undone = self.may_undo(ack);
        if undone {
            if self.state == State::Recovery {
                self.rack.on_needless();
            }
            self.undo_reduction(false);
        }
        undone
    }

    /// A part is acknowledged during fast recovery. If that is by an original, the gap was filled
    /// by what had only been overtaken: nothing more is to be deemed lost now, and if nothing sent
    /// again is under way, it is as if nothing had been.
    pub(super) fn try_undo_partial(&mut self, ack: &Ack<'_>) -> Partial {
        if self.undo.is_none() || !self.answers_original(ack) {
            return Partial::Loss;
        }
        self.rack.on_needless();
        if self.board.resent() > 0 {
            return Partial::Overtaken;
        }
        self.undo_reduction(true);
        self.keep_open();
        Partial::Undone
    }

    /// Every retransmission was reported as a duplicate.
    pub(super) fn try_undo_duplicates(&mut self) -> bool {
        let undone = self.undo.is_some_and(Undo::all_were_duplicates);
        if undone {
            self.rack.on_needless();
            self.undo_reduction(false);
        }
        undone
    }

    /// After a timeout: `spurious` if F-RTO says so.
    pub(super) fn try_undo_loss(&mut self, ack: &Ack<'_>, spurious: bool) -> bool {
        if !spurious && !self.may_undo(ack) {
            return false;
        }
        self.undo_reduction(true);
        self.timeouts = 0;
        self.state = State::Open;
        true
    }
}
