//! The timers of the sending side: retransmission timeout, tail loss probe, reordering.
//!
//! Not here: the connection's own timers. A timer is a point in time in a field;
//! [`Recovery::next_timeout`] gives the earliest.

use super::reduction::Undo;
use super::{Expired, Recovery, State};
use crate::cc::Signal;
use crate::scoreboard::{Mark, Verdict};
use crate::time::{Duration, Instant};
use crate::tlp;

/// Bytes newly lost.
pub(super) struct DetectedLoss {
    pub(super) lost: u64,
    /// The part of them that had been retransmitted already.
    pub(super) again: u64,
}

impl Recovery {
    /// Returns the time at which [`Recovery::on_timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        [self.rto_at, self.probe_at, self.reordering_at, self.resume_at].into_iter().flatten().min()
    }

    /// Handles one expired timer and returns its cause; returns `None` if no timer has expired. May
    /// be called at any time.
    pub fn on_timeout(&mut self, now: Instant) -> Option<Expired> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.reordering_at) {
            self.on_reordering(now);
            return Some(Expired::Reordering);
        }
        if due(self.probe_at) {
            self.probe_at = None;
            self.rto_at = Some(now + self.rtt.rto());
            // RFC 8985, 7.2: there is at most one unanswered probe.
            if !self.tlp.is_pending() {
                self.probe_due = true;
                return Some(Expired::Probe);
            }
        }
        if due(self.rto_at) {
            return Some(self.on_retransmission_timeout(now));
        }
        if due(self.resume_at) {
            self.resume_at = None;
            return Some(Expired::Pacing);
        }
        None
    }

    /// Restarts the timers after progress, or stops them if nothing is outstanding (RFC 6298, 5.2
    /// and 5.3).
    pub(super) fn rearm(&mut self, now: Instant) {
        self.rto_at = (!self.board.is_empty()).then(|| now + self.rtt.rto());
        self.schedule_probe(now);
    }

    /// Schedules a probe if the connection is neither in recovery nor has SACK reports (RFC 8985,
    /// 7.2).
    pub(super) fn schedule_probe(&mut self, now: Instant) {
        let usual = matches!(self.state, State::Open | State::Reduced);
        if !(self.config.tail_loss_probe && self.config.sack && usual)
            || self.board.is_empty()
            || self.board.sacked() > 0
            || self.tlp.is_pending()
        {
            self.probe_at = None;
            return;
        }
        let lone = self.board.outstanding() <= self.window.mss;
        let at = now + tlp::timeout(self.rtt.srtt(), lone);
        self.probe_at = Some(self.rto_at.map_or(at, |rto_at| rto_at.min(at)));
    }

    /// Lets RACK judge the outstanding entries, and sets the reordering timer if some may yet
    /// arrive.
    pub(super) fn detect_loss(&mut self, now: Instant) -> DetectedLoss {
        let resent = self.board.resent();
        let window = self.reordering_window();
        let (rack, mut wait) = (self.rack, None);
        let lost = self.board.judge(|entry| rack.judge(now, entry, window, &mut wait));
        self.reordering_at = wait.map(|wait| now + wait);
        DetectedLoss { lost, again: resent.saturating_sub(self.board.resent()) }
    }

    fn reordering_window(&self) -> Duration {
        let recovering = matches!(self.state, State::Recovery | State::Loss);
        let eager = recovering || self.has_enough_duplicates();
        self.rack.window(eager, self.rtt.min(), self.rtt.srtt())
    }

    fn on_reordering(&mut self, now: Instant) {
        self.reordering_at = None;
        let flight = self.board.outstanding();
        let before = self.board.in_flight();
        let lost = self.detect_loss(now).lost;
        if lost == 0 {
            return;
        }
        if self.state != State::Recovery && self.state != State::Loss {
            self.enter_recovery(flight);
        }
        // Lost bytes left the network but were not delivered, so PRR gets 0 delivered bytes.
        if self.is_reducing() && before > self.board.in_flight() {
            self.reduce(0, false);
        }
        self.rto_at = Some(now + self.rtt.rto());
    }

    /// Handles the retransmission timeout (RFC 6298, 5.4 to 5.6; Linux's `tcp_enter_loss`).
    fn on_retransmission_timeout(&mut self, now: Instant) -> Expired {
        let first = !matches!(self.state, State::Recovery | State::Loss);
        let una = self.board.una();
        self.mark_after_timeout(now);
        if matches!(self.state, State::Open | State::Disorder)
            || self.point <= una
            || (self.state == State::Loss && self.timeouts == 0)
        {
            self.controller.on_congestion(&mut self.window, Signal::Timeout, false);
            self.undo = Some(Undo::begin(una, self.board.resent()));
        }
        self.window.set(self.board.in_flight() + self.window.mss);
        self.cwr_due = true;
        self.frto.on_timeout(self.config.frto && (first || self.timeouts > 0));
        self.only_new = false;
        self.state = State::Loss;
        self.point = self.board.nxt();
        self.tlp.forget();
        (self.probe_at, self.reordering_at, self.probe_due) = (None, None, false);
        self.rtt.back_off();
        self.timeouts += 1;
        self.statistics.timeouts_total += 1;
        self.rto_at = Some(now + self.rtt.rto());
        Expired::Retransmission(self.timeouts)
    }

    /// Marks all bytes lost except those sent too recently to be late. If the peer reneged, the
    /// bytes that it had reported are lost too (Linux's `tcp_timeout_mark_lost`).
    fn mark_after_timeout(&mut self, now: Instant) {
        if self.board.head().is_some_and(|head| head.mark == Mark::Sacked) {
            // The first outstanding bytes are reported but not acknowledged: the peer discarded
            // them (RFC 2018, 8).
            self.board.renege();
            self.board.judge(|_| Verdict::Lost);
            return;
        }
        self.board.clear_duplicates();
        self.repeats = 0;
        // Without SACK all bytes are marked now, since RACK will not mark them later.
        let (rack, una, sack) = (self.rack, self.board.una(), self.config.sack);
        let window = self.rack.window(false, self.rtt.min(), self.rtt.srtt());
        self.board.judge(|entry| {
            let head = entry.span.start == una;
            if head || !sack || rack.is_old(now, entry, window) {
                Verdict::Lost
            } else {
                Verdict::Wait
            }
        });
    }
}
