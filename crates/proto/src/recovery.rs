//! The sending side's loss recovery: which bytes were delivered, which are lost, how many may be
//! sent now, and when the next timer is due.
//!
//! [`Recovery`] joins the parts that each know one thing: the scoreboard, round-trip times, RACK
//! and the tail loss probe, F-RTO, PRR, the congestion controller and pacing. A connection calls
//! [`Recovery`] only. Not here: bytes, segments, the peer's window, zero-window probes, keepalive,
//! delayed acknowledgements; they are the connection's. Positions are [`crate::position`]'s.
//!
//! # How to call it
//! * [`Recovery::on_ack`] for every acceptable segment with an acknowledgement that is in order or
//!   has news in its SACK blocks.
//! * Then, and after anything else that could allow sending, the output loop:
//!   1. [`Recovery::retransmission`] while it returns a span: send the span (or its first part),
//!      then call [`Recovery::on_transmit`].
//!   2. [`Recovery::budget`] bytes of new data, as the peer's window allows: send them, then call
//!      [`Recovery::on_transmit`].
//!   3. [`Recovery::on_output_done`] with the reason why the loop stopped.
//! * [`Recovery::next_timeout`] is one of the connection's timers; when the timer is due,
//!   [`Recovery::on_timeout`] returns its cause, and the output loop runs again. If the cause was
//!   [`Expired::Probe`], a tail loss probe is due: see [`Recovery::probe`].

mod ack;
mod reduction;
mod timer;
mod types;
mod undo;

pub use types::{Ack, Acked, Config, Expired, Start, State, Statistics, Stopped, Transmission};

use crate::cc::usage::{OutputDone, Usage};
use crate::cc::{Controller, Window};
use crate::frto::Frto;
use crate::pacing::Pacing;
use crate::position::Span;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::rtt::RttEstimator;
use crate::scoreboard::Scoreboard;
use crate::time::Instant;
use crate::tlp::TailLossProbe;
use reduction::Undo;

/// Loss recovery and congestion control of one connection's sending side.
#[derive(Debug)]
pub struct Recovery {
    config: Config,
    board: Scoreboard,
    rtt: RttEstimator,
    rack: Rack,
    tlp: TailLossProbe,
    frto: Frto,
    prr: Prr,
    window: Window,
    controller: Controller,
    usage: Usage,
    pacing: Pacing,
    state: State,
    /// The position whose acknowledgement ends the state (`high_seq` in Linux).
    point: u64,
    undo: Option<Undo>,
    /// The window was reduced, and no CWR has told the peer yet.
    cwr_due: bool,
    /// The time of the first retransmission since the last moment without outstanding retransmitted
    /// bytes.
    again_since: Option<Instant>,
    /// Acknowledgements since the last progress that reported bytes beyond a gap; each stands for
    /// at least one segment.
    repeats: u32,
    rto_at: Option<Instant>,
    probe_at: Option<Instant>,
    reordering_at: Option<Instant>,
    /// The time at which the output loop is to run again even without another event.
    resume_at: Option<Instant>,
    /// Retransmission timeouts in a row.
    timeouts: u32,
    /// A tail loss probe is to be sent.
    probe_due: bool,
    /// F-RTO wants new data, and nothing again, until the next acknowledgement.
    only_new: bool,
    last_sent: Instant,
    /// A segment was sent since the output loop last ended.
    sent: bool,
    stopped: Stopped,
    statistics: Statistics,
}

impl Recovery {
    /// Creates the state from a session record's values. Allocates the scoreboard; later calls do
    /// not allocate.
    pub fn new(config: Config, start: Start, now: Instant) -> Recovery {
        let mss = u64::from(config.mss.max(1));
        let mut window = Window { cwnd: 0, ssthresh: start.ssthresh, mss, max: config.window_max };
        window.set(if start.cwnd == 0 { config.initial_window } else { start.cwnd });
        let mut rtt = RttEstimator::new(config.rto_min, config.rto_max);
        if let Some(srtt) = start.srtt {
            rtt.restore(now, srtt, start.rttvar, start.min_rtt);
        }
        let mut rack = Rack::new();
        if start.reordering_seen {
            rack.on_needless();
        }
        let mut board = Scoreboard::new(start.una, config.scoreboard_entries);
        let mut pacing = Pacing::new(config.pacing, config.pacing_rate_max);
        pacing.update(window.cwnd, window.ssthresh, rtt.srtt());
        let outstanding = start.nxt.saturating_sub(start.una);
        if outstanding > 0 {
            board.restore(now, outstanding);
        }
        Recovery {
            rto_at: (outstanding > 0).then(|| now + rtt.rto()),
            controller: Controller::new(config.controller, &window, start.w_max),
            config,
            board,
            rtt,
            rack,
            tlp: TailLossProbe::default(),
            frto: Frto::default(),
            prr: Prr::default(),
            window,
            usage: Usage::new(now),
            pacing,
            state: State::Open,
            point: start.una,
            undo: None,
            cwr_due: start.cwr_due,
            again_since: None,
            repeats: 0,
            probe_at: None,
            reordering_at: None,
            resume_at: None,
            timeouts: 0,
            probe_due: false,
            only_new: false,
            last_sent: now,
            sent: false,
            stopped: Stopped::Application,
            statistics: Statistics::default(),
        }
    }

    /// Returns the next span to retransmit, if there is one and it may be sent now. The whole span
    /// fits the budget; the caller may send any first part of it.
    pub fn retransmission(&mut self, now: Instant) -> Option<Span> {
        if self.only_new || self.board.lost() == 0 {
            return None;
        }
        let room = self.room(now);
        if room == 0 { None } else { self.board.next_lost(room) }
    }

    /// Returns the bytes of new data that may be sent now: a multiple of a full segment, or 0.
    pub fn budget(&mut self, now: Instant) -> u64 {
        if self.board.is_empty() && self.config.slow_start_after_idle {
            self.restart_after_idle(now);
        }
        if !self.board.has_room() { 0 } else { self.room(now) }
    }

    /// Returns the span of the last segment, if a tail loss probe is due. If there is new data that
    /// the peer's window allows, the caller sends one segment of it as the probe
    /// ([`Transmission::New`]), even beyond the budget; otherwise the caller sends the returned
    /// span again ([`Transmission::Again`]). The next transmission counts as the probe (RFC 8985,
    /// 7.3).
    pub fn probe(&self) -> Option<Span> {
        let tail = self.board.tail().filter(|_| self.probe_due)?;
        let start = tail.span.end.saturating_sub(self.window.mss).max(tail.span.start);
        Some(Span::new(start, tail.span.end))
    }

    /// Tells that `span` was just sent.
    pub fn on_transmit(&mut self, now: Instant, span: Span, what: Transmission) {
        match what {
            Transmission::New => self.on_new(now, span),
            Transmission::Again => self.on_again(now, span),
        }
        self.prr.on_sent(span.len());
        self.pacing.on_sent(now, span.len());
        self.last_sent = now;
        self.sent = true;
        if self.probe_due {
            self.probe_due = false;
            self.statistics.probes_total += 1;
            self.tlp.on_sent(self.board.nxt(), what == Transmission::Again);
            // RFC 8985, 7.3: after the probe the timeout starts anew.
            self.rto_at = Some(now + self.rtt.rto());
            self.probe_at = None;
        }
    }

    /// Tells that the output loop ended, and why.
    pub fn on_output_done(&mut self, now: Instant, stopped: Stopped) {
        self.stopped = stopped;
        self.resume_at = None;
        // A sender that waits until the window has room for a whole burst is limited by the window
        // as well (`tcp_tso_should_defer`).
        let paced = self.pacing.release(now);
        let used_up = self.window_room() < self.window.mss;
        let wanted = stopped == Stopped::Window || self.board.lost() > 0;
        let full = wanted && (used_up || (stopped == Stopped::Window && paced.is_none()));
        // As in Linux (`tcp_cwnd_validate`) the use of the window is judged only after bytes were
        // sent or were held back by the window.
        if core::mem::take(&mut self.sent) || full {
            self.note_usage(now, full);
        }
        if self.only_new && stopped != Stopped::Window && self.board.lost() > 0 {
            // There was no new data to send: F-RTO cannot decide, so the lost bytes are
            // retransmitted.
            self.only_new = false;
            self.resume_at = Some(now);
        } else if wanted && !used_up {
            self.resume_at = paced;
        }
    }

    /// Sets the size of a full segment. If the size shrinks because the path MTU did (`too_big`),
    /// all outstanding bytes are marked lost and sent again without a reduction of the window,
    /// since there was no congestion (Linux's `tcp_simple_retransmit`).
    pub fn set_mss(&mut self, now: Instant, mss: u32, too_big: bool) {
        self.window.mss = u64::from(mss.max(1));
        self.window.set(self.window.cwnd);
        if !too_big || self.board.is_empty() {
            return;
        }
        self.board.judge(|_| crate::scoreboard::Verdict::Lost);
        if self.state != State::Loss {
            self.point = self.board.nxt();
            self.undo = None;
            self.state = State::Loss;
            self.frto.on_timeout(false);
        }
        self.resume_at = Some(now);
    }

    /// Returns the number of retransmission timeouts in a row, for `tcp_retries2`.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Returns true if the window was reduced for any reason and the next new data on a connection
    /// with ECN must carry CWR (RFC 3168, 6.1.2).
    pub fn cwr_due(&self) -> bool {
        self.cwr_due
    }

    /// Returns [`Recovery::cwr_due`] and clears it, when CWR is being sent.
    pub fn take_cwr(&mut self) -> bool {
        core::mem::take(&mut self.cwr_due)
    }

    /// Returns the bytes estimated to be in the network (RFC 6675's pipe).
    pub fn in_flight(&self) -> u64 {
        self.board.in_flight()
    }

    /// Returns the congestion window in bytes for a session record: during a recovery the window
    /// that will apply when the recovery ends.
    pub fn cwnd(&self) -> u64 {
        if self.is_reducing() {
            self.window.ssthresh.min(self.window.max)
        } else {
            self.window.cwnd
        }
    }

    /// Returns the slow start threshold in bytes; `u64::MAX` if there is none yet.
    pub fn ssthresh(&self) -> u64 {
        self.window.ssthresh
    }

    /// Returns CUBIC's `W_max` in bytes; 0 if there is none.
    pub fn w_max(&self) -> u64 {
        self.controller.w_max()
    }

    /// Returns the congestion state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the round-trip time estimator.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Returns the scoreboard of the outstanding bytes.
    pub fn scoreboard(&self) -> &Scoreboard {
        &self.board
    }

    /// Returns the pacing rate in bytes a second, if pacing is on.
    pub fn pacing_rate(&self) -> Option<u64> {
        self.pacing.rate()
    }

    /// Returns counters and marks, for information only.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            sacked: self.board.sacked(),
            lost: self.board.lost(),
            retransmitted: self.board.resent(),
            reordering_seen: self.rack.reordering_seen(),
            ..self.statistics
        }
    }

    fn on_new(&mut self, now: Instant, span: Span) {
        let first = self.board.is_empty();
        if first {
            self.controller.on_idle(now.since(self.last_sent));
        }
        self.board.push(now, span.len());
        if first {
            self.rto_at = Some(now + self.rtt.rto());
        }
        self.schedule_probe(now);
    }

    fn on_again(&mut self, now: Instant, span: Span) {
        let head = span.start == self.board.una();
        self.board.resend(now, span);
        self.again_since.get_or_insert(now);
        self.statistics.retransmitted_total += span.len();
        if let Some(undo) = &mut self.undo {
            undo.on_again(span.len());
        }
        if head {
            self.rto_at = Some(now + self.rtt.rto());
        }
    }

    fn note_usage(&mut self, now: Instant, full: bool) {
        let shrink = self.config.slow_start_after_idle
            && self.state == State::Open
            && self.stopped == Stopped::Application;
        let done = OutputDone {
            una: self.board.una(),
            nxt: self.board.nxt(),
            full,
            rto: self.rtt.rto(),
            shrink: shrink.then_some(self.config.initial_window),
        };
        self.usage.on_output_done(&mut self.window, now, &done);
    }

    /// Returns the window less the bytes in flight.
    fn window_room(&self) -> u64 {
        self.window.cwnd.saturating_sub(self.board.in_flight())
    }

    /// Returns the bytes that window and pacing allow, in full segments. If nothing is in flight,
    /// the window allows at least one segment.
    fn room(&self, now: Instant) -> u64 {
        let mss = self.window.mss;
        let room = if self.board.in_flight() == 0 {
            self.window.cwnd.max(mss)
        } else {
            self.window_room()
        };
        let room = room.min(self.pacing.allowance(now, mss));
        room - room % mss
    }

    /// Returns true while PRR sets the window.
    fn is_reducing(&self) -> bool {
        matches!(self.state, State::Reduced | State::Recovery)
    }

    fn restart_after_idle(&mut self, now: Instant) {
        let (idle, rto) = (now.since(self.last_sent), self.rtt.rto());
        if idle > rto && self.window.cwnd > self.config.initial_window {
            let floor = self.config.initial_window;
            self.usage.on_restart(&mut self.window, now, idle, rto, floor);
            self.controller.on_idle(idle);
            self.last_sent = now;
        }
    }
}

#[cfg(test)]
mod tests;
