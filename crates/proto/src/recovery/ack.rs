//! Processing of acknowledgements: marks, round-trip times, loss detection, and the congestion
//! state.
//!
//! Not here: the timers ([`super::timer`]), and the decision to take a reduction back
//! ([`super::undo`]). The order of the steps and the transitions are Linux's (`tcp_ack`,
//! `tcp_fastretrans_alert`).

use super::reduction::Undo;
use super::timer::DetectedLoss;
use super::undo::Partial;
use super::{Ack, Acked, Recovery, State, Stopped};
use crate::cc::{self, Signal};
use crate::frto::{Facts, SenderAction};
use crate::position::Span;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::scoreboard::Delivery;
use crate::time::{Duration, Instant};
use crate::tlp::Answer;

/// Segments beyond a gap that leave no doubt about a loss (RFC 5681, 3.2; `DupThresh` in RFC 8985,
/// 6.2).
const DUPLICATES: u32 = 3;

/// A time of the oldest and one of the latest of some segments.
#[derive(Clone, Copy)]
struct Extremes<T> {
    oldest: T,
    latest: T,
}

/// The facts gathered while the scoreboard processes one acknowledgement.
#[derive(Default)]
struct AckSummary {
    advanced: u64,
    delivered: u64,
    /// Bytes newly reported by SACK.
    reported: u64,
    /// When segments were sent that were sent once and are acknowledged by number.
    acked: Option<Extremes<Instant>>,
    /// The same for segments reported by SACK.
    selected: Option<Extremes<Instant>>,
    /// A retransmitted segment is acknowledged by number, so the times above do not count (Karn;
    /// RFC 6298, 3).
    ambiguous: bool,
    /// Bytes that were sent once, and before the recovery point, have arrived.
    original: bool,
    /// The acknowledgement's D-SACK block.
    duplicate_block: Option<Span>,
    /// The acknowledgement is a duplicate (RFC 5681, 2).
    duplicate: bool,
    lost: u64,
    /// The part of `lost` that had been retransmitted before.
    lost_again: u64,
}

impl AckSummary {
    fn take(&mut self, delivery: &Delivery, point: u64) {
        let entry = &delivery.entry;
        self.delivered += entry.span.len();
        if delivery.selective {
            self.reported += entry.span.len();
        }
        if entry.again {
            self.ambiguous |= !delivery.selective;
            return;
        }
        self.original |= entry.span.end <= point;
        if entry.sent_first == entry.sent_last {
            let times = if delivery.selective { &mut self.selected } else { &mut self.acked };
            let sent = entry.sent_first;
            let known = times.unwrap_or(Extremes { oldest: sent, latest: sent });
            *times =
                Some(Extremes { oldest: known.oldest.min(sent), latest: known.latest.max(sent) });
        }
    }

    fn round_trips(&self, now: Instant, ack: &Ack<'_>) -> Option<Extremes<Duration>> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        if let Some(Extremes { oldest, .. }) = acked.or(self.selected) {
            let latest = self.selected.or(acked).map_or(oldest, |times| times.latest);
            return Some(Extremes { oldest: now.since(oldest), latest: now.since(latest) });
        }
        let echo = ack.echo.filter(|_| self.advanced > 0)?;
        Some(Extremes { oldest: now.since(echo), latest: now.since(echo) })
    }
}

impl Recovery {
    /// Processes an acknowledgement: updates marks, timers, congestion state and window.
    pub fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) -> Acked {
        let flight = self.board.outstanding();
        let undone_before = self.statistics.undone_total;
        let mut news = self.mark(now, ack);
        self.count_duplicates(ack, &mut news);
        self.measure(now, ack, &news);
        if news.advanced > 0 {
            self.timeouts = 0;
        }
        self.only_new = false;
        let reduced_by_probe = self.answer_probe(ack, &news);
        self.advance_state(now, ack, &mut news, flight);
        let progress = news.advanced > 0 && news.lost == 0;
        if self.is_reducing() {
            self.reduce(news.delivered, progress);
        } else if !reduced_by_probe {
            self.grow(now, ack, &news);
        }
        if self.board.una() >= self.board.again_to() {
            self.again_since = None;
        }
        if news.advanced > 0 {
            self.rearm(now);
        } else if news.reported > 0 {
            self.probe_at = None;
        }
        self.pacing.update(self.window.cwnd, self.window.ssthresh, self.rtt.srtt());
        Acked {
            advanced: news.advanced,
            delivered: news.delivered,
            lost: news.lost,
            undone: self.statistics.undone_total > undone_before,
        }
    }

    /// Enters the acknowledgement on the scoreboard.
    fn mark(&mut self, now: Instant, ack: &Ack<'_>) -> AckSummary {
        let mut news = AckSummary::default();
        let (una, fack, point) = (self.board.una(), self.board.fack(), self.point);
        let min_rtt = self.rtt.min();
        let rack: &mut Rack = &mut self.rack;
        let mut delivered = |delivery: &Delivery| {
            rack.on_delivered(now, delivery, min_rtt);
            news.take(delivery, point);
        };
        self.board.acknowledge(ack.una, &mut delivered);
        if self.config.sack {
            for block in ack.sack {
                if block.start >= ack.una && block.end <= self.board.nxt() {
                    self.board.sack(*block, fack, &mut delivered);
                }
            }
        }
        news.advanced = self.board.una() - una;
        // Without SACK a retransmission that filled the gap also acknowledges originals that had
        // arrived long before, so these are no sign of a spurious timeout (`tcp_clean_rtx_queue`).
        news.original &= self.config.sack || !news.ambiguous;
        self.statistics.delivered_total += news.delivered;
        news.duplicate_block = duplicate_block(ack);
        if let Some(block) = news.duplicate_block {
            self.on_duplicate_block(block);
        }
        news
    }

    /// Counts a D-SACK block as the answer to a retransmission, unless more duplicates were
    /// reported than bytes retransmitted: then the network duplicated segments (RFC 3708).
    fn on_duplicate_block(&mut self, block: Span) {
        self.statistics.duplicates_total += block.len();
        if self.statistics.duplicates_total > self.statistics.retransmitted_total {
            return;
        }
        if let Some(undo) = &mut self.undo {
            undo.on_duplicate(block);
        }
        // A block about the tail loss probe says nothing about reordering (`tcp_dsack_seen`).
        if self.rack.reordering_seen() && !self.tlp.ends_at(block.end) {
            self.rack.on_dsack(self.board.una(), self.board.nxt());
        }
    }

    /// Counts duplicate acknowledgements, as RFC 5681, 2 defines them. Without SACK each of them
    /// stands for a segment that left the network.
    fn count_duplicates(&mut self, ack: &Ack<'_>, news: &mut AckSummary) {
        news.duplicate = news.advanced == 0
            && ack.una == self.board.una()
            && !ack.carries_data
            && !ack.window_changed
            && !self.board.is_empty();
        if news.advanced > 0 {
            self.repeats = 0;
        }
        let repeats = if self.config.sack { news.reported > 0 } else { news.duplicate };
        self.repeats = self.repeats.saturating_add(u32::from(repeats));
        if self.config.sack {
            return;
        }
        let mss = self.window.mss;
        if news.duplicate {
            self.board.add_duplicate(mss);
            news.delivered += mss;
        } else if news.advanced > 0 {
            // The segments for which duplicates had stood were counted when the duplicates came.
            let counted = self.board.sacked();
            news.delivered = news.advanced.saturating_sub(counted).max(mss.min(news.advanced));
            self.board.remove_duplicates(news.advanced, mss);
        }
    }

    fn measure(&mut self, now: Instant, ack: &Ack<'_>, news: &AckSummary) {
        if let Some(Extremes { oldest, latest }) = news.round_trips(now, ack) {
            self.rtt.sample(now, oldest, latest, self.board.una(), self.board.nxt());
            self.rtt.reset_backoff();
        }
    }

    /// Processes the answer to a tail loss probe (RFC 8985, 7.4). Returns true if the window was
    /// reduced for a loss that the probe repaired.
    fn answer_probe(&mut self, ack: &Ack<'_>, news: &AckSummary) -> bool {
        let plain = news.duplicate && news.reported == 0;
        let dsack = news.duplicate_block.is_some_and(|block| self.tlp.ends_at(block.end));
        let answer = self.tlp.on_ack(ack.una, dsack, plain);
        let usual = matches!(self.state, State::Open | State::Disorder);
        if answer == Answer::Repaired && usual {
            self.controller.on_congestion(&mut self.window, Signal::Loss, false);
            self.undo = None;
            self.cwr_due = true;
            self.window.set(self.window.ssthresh);
            return true;
        }
        false
    }

    /// Moves the congestion state on (Linux's `tcp_fastretrans_alert`).
    fn advance_state(&mut self, now: Instant, ack: &Ack<'_>, news: &mut AckSummary, flight: u64) {
        if ack.ece {
            // A mark of the network is real congestion, so the reduction stays even if a
            // retransmission turns out to be needless.
            self.controller.confirm();
        }
        // Without SACK the end must be passed, or late duplicates would begin the next recovery
        // (RFC 6582, 4.1).
        let at_end = self.board.una() == self.point && !self.board.is_empty();
        if self.board.una() >= self.point && (self.config.sack || !at_end) {
            self.end_state(ack);
        }
        match self.state {
            State::Recovery => {
                let partial =
                    if news.advanced > 0 { self.try_undo_partial(ack) } else { Partial::Loss };
                if partial == Partial::Overtaken {
                    return;
                }
                if partial == Partial::Loss && self.try_undo_duplicates() {
                    self.keep_open();
                }
                self.find_losses(now, news);
                if self.state == State::Recovery {
                    return;
                }
            }
            State::Loss => {
                self.after_timeout(ack, news);
                self.find_losses(now, news);
                if self.state == State::Loss && news.lost_again == 0 {
                    return;
                }
            }
            State::Open | State::Disorder | State::Reduced => {
                if self.state != State::Reduced {
                    self.try_undo_duplicates();
                }
                self.find_losses(now, news);
            }
        }
        if self.board.lost() > 0 {
            self.enter_recovery(flight);
            if ack.ece {
                self.controller.confirm();
            }
            return;
        }
        self.settle(ack, flight);
    }

    /// Ends the state: all bytes that were outstanding when it began are acknowledged.
    fn end_state(&mut self, ack: &Ack<'_>) {
        match self.state {
            State::Reduced if self.board.una() > self.point => {
                self.window.set(self.window.ssthresh);
                self.state = State::Open;
            }
            State::Recovery => {
                self.board.clear_duplicates();
                self.rack.on_recovered();
                if !self.try_undo_recovery(ack) {
                    self.window.set(self.window.ssthresh);
                }
                self.undo = None;
                self.state = State::Open;
            }
            _ => {}
        }
    }

    /// Processes an acknowledgement in state Loss: undo, F-RTO, or the end of the state (Linux's
    /// `tcp_process_loss`).
    fn after_timeout(&mut self, ack: &Ack<'_>, news: &AckSummary) {
        if news.advanced > 0 && self.try_undo_loss(ack, false) {
            return;
        }
        let recovered = self.board.una() >= self.point;
        let facts = Facts {
            original_arrived: news.original,
            advanced: news.advanced > 0,
            recovered,
            duplicate: news.reported > 0 || news.duplicate,
            sent_new: self.board.nxt() > self.point,
            can_send_new: self.stopped == Stopped::Window,
        };
        match self.frto.on_ack(&facts) {
            SenderAction::Spurious => {
                self.try_undo_loss(ack, true);
                return;
            }
            SenderAction::SendNew => {
                self.point = self.board.nxt();
                self.only_new = true;
                return;
            }
            SenderAction::Conventional => {}
        }
        if recovered {
            self.board.clear_duplicates();
            self.rack.on_recovered();
            self.try_undo_recovery(ack);
            self.undo = None;
            self.state = State::Open;
        } else if !self.config.sack && news.advanced > 0 {
            self.board.clear_duplicates();
        }
    }

    /// Marks lost bytes: by RACK, or without SACK by the count of duplicate acknowledgements (RFC
    /// 6582).
    fn find_losses(&mut self, now: Instant, news: &mut AckSummary) {
        if self.config.sack {
            if self.rack.take_advanced() {
                let DetectedLoss { lost, again } = self.detect_loss(now);
                news.lost += lost;
                news.lost_again += again;
            }
            return;
        }
        let lost = match self.state {
            // RFC 6582, 3.2, step 3: a partial acknowledgement means that the next segment is lost
            // as well.
            State::Recovery => news.advanced > 0,
            State::Loss => false,
            _ => self.has_enough_duplicates(),
        };
        if lost {
            news.lost += self.board.lose_head(self.window.mss);
        }
    }

    /// Returns true if three segments have arrived beyond a gap. The scoreboard counts bytes, and
    /// segments may be small, so three acknowledgements that reported bytes beyond the gap suffice
    /// too.
    pub(super) fn has_enough_duplicates(&self) -> bool {
        self.repeats >= DUPLICATES
            || self.board.sacked() > u64::from(DUPLICATES - 1) * self.window.mss
    }

    /// Chooses the state when nothing is lost: Open or Disorder, or Reduced after a congestion
    /// mark.
    fn settle(&mut self, ack: &Ack<'_>, flight: u64) {
        if self.state == State::Reduced {
            return;
        }
        if ack.ece {
            self.begin_reduction(Signal::Mark, flight);
            self.controller.confirm();
            self.undo = None;
            self.state = State::Reduced;
        } else {
            self.keep_open();
        }
    }

    /// Sets the state to Open, or to Disorder if bytes are reported or were retransmitted (Linux's
    /// `tcp_try_keep_open`).
    pub(super) fn keep_open(&mut self) {
        let disorder = self.board.sacked() > 0 || self.board.una() < self.board.again_to();
        let state = if disorder { State::Disorder } else { State::Open };
        if state != self.state {
            self.state = state;
            self.point = self.board.nxt();
        }
    }

    /// Begins fast recovery; `flight` bytes were outstanding before (Linux's `tcp_enter_recovery`).
    pub(super) fn enter_recovery(&mut self, flight: u64) {
        self.statistics.recoveries_total += 1;
        self.tlp.forget();
        (self.probe_at, self.probe_due) = (None, false);
        self.undo = Some(Undo::begin(self.board.una(), self.board.resent()));
        if self.is_reducing() {
            self.point = self.board.nxt();
        } else {
            self.begin_reduction(Signal::Loss, flight);
        }
        self.state = State::Recovery;
    }

    fn begin_reduction(&mut self, signal: Signal, flight: u64) {
        self.controller.on_congestion(&mut self.window, signal, false);
        self.prr = Prr::begin(flight);
        self.cwr_due = true;
        self.point = self.board.nxt();
        self.tlp.forget();
        self.probe_at = None;
    }

    /// Lets PRR set the window after an acknowledgement during a reduction (Linux's
    /// `tcp_cwnd_reduction`).
    pub(super) fn reduce(&mut self, delivered: u64, progress: bool) {
        let in_flight = self.board.in_flight();
        let (ssthresh, mss) = (self.window.ssthresh, self.window.mss);
        let allowed = self.prr.on_ack(delivered, in_flight, ssthresh, mss, progress);
        self.window.set(in_flight + allowed);
    }

    fn grow(&mut self, now: Instant, ack: &Ack<'_>, news: &AckSummary) {
        let reordering = self.rack.reordering_seen();
        if news.delivered == 0 || (news.advanced == 0 && !reordering) {
            return;
        }
        let limited = self.usage.is_limited(&self.window);
        let rtt = news.round_trips(now, ack).map(|times| times.latest);
        let acked = cc::Acked {
            now,
            bytes: news.delivered,
            rtt,
            srtt: self.rtt.srtt(),
            una: self.board.una(),
            nxt: self.board.nxt(),
            limited,
        };
        self.controller.on_ack(&mut self.window, &acked);
    }
}

/// Returns the D-SACK block of an acknowledgement (RFC 2883, 4): the first block, if it lies below
/// the acknowledgement number or within the second block.
fn duplicate_block(ack: &Ack<'_>) -> Option<Span> {
    let first = *ack.sack.first()?;
    let within = ack.sack.get(1).is_some_and(|second| second.covers(first));
    (!first.is_empty() && (first.start < ack.una || within)).then_some(first)
}
