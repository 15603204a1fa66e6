//! Detection and undoing of needless window reductions. A reduction was needless if all
//! retransmitted bytes had arrived before (D-SACK, RFC 2883 and 3708), or if the timestamps show
//! that an original was acknowledged (Eifel, RFC 3522).
//!
//! Not here: F-RTO, another method of detection ([`crate::frto`]). The rules are Linux's
//! (`tcp_may_undo` and the `tcp_try_undo_*` functions).

use super::Recovery;
use super::reduction::Undo;
use super::types::{Ack, State};

/// The conclusion from an acknowledgement during fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partial {
    /// No sign that the reduction was needless.
    Loss,
    /// An original filled the gap; retransmissions are still in the network.
    Overtaken,
    /// The reduction was taken back.
    Undone,
}

impl Recovery {
    /// Takes the last reduction back, unless a congestion mark asked for it as well. `clear_losses`
    /// also clears all marks of loss.
    pub(super) fn undo_reduction(&mut self, clear_losses: bool) {
        if self.controller.undo(&mut self.window) {
            self.cwr_due = false;
            self.statistics.undone_total += 1;
        } else if self.is_reducing() {
            self.window.set(self.window.ssthresh);
        }
        self.undo = None;
        if clear_losses {
            self.board.clear_losses();
        }
        self.rack.reconsider();
    }

    /// Returns true if the acknowledgement answers an original: the echoed timestamp is older than
    /// the first retransmission (Linux's `tcp_packet_delayed`).
    pub(super) fn answers_original(&self, ack: &Ack<'_>) -> bool {
        match (ack.echo, self.config.timestamp_unit, self.again_since) {
            // The echo is rounded down by less than a unit, so a unit is added.
            (Some(echo), Some(unit), Some(since)) => echo + unit <= since,
            _ => false,
        }
    }

    fn may_undo(&self, ack: &Ack<'_>) -> bool {
        self.undo.is_some_and(|undo| undo.all_were_duplicates() || self.answers_original(ack))
    }

    /// Called when all bytes up to the recovery point are acknowledged. Returns true if the
    /// reduction was taken back.
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

    /// Called for a partial acknowledgement during fast recovery. If an original caused it, the
    /// segment in the gap had only been overtaken: no more bytes are to be deemed lost now, and if
    /// no retransmission is in the network, the reduction is taken back.
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

    /// Takes the reduction back if every retransmission was reported as a duplicate.
    pub(super) fn try_undo_duplicates(&mut self) -> bool {
        let undone = self.undo.is_some_and(Undo::all_were_duplicates);
        if undone {
            self.rack.on_needless();
            self.undo_reduction(false);
        }
        undone
    }

    /// Takes the reduction of a timeout back if it was needless; `spurious` is true if F-RTO found
    /// that.
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
