//! The sending side's judgement: what was delivered, what is lost, what may be sent now, and when to wake up for it.
//!
//! [`Recovery`] puts the parts together that each know one thing: the scoreboard, round-trip times, RACK and the tail loss probe,
//! F-RTO, PRR, the congestion controller and pacing. A connection talks to this one only. Not here: bytes, segments, the peer's
//! window, zero-window probes, keepalive, delayed acknowledgements; they are the connection's. Positions are [`crate::position`]'s.
//!
//! # How to call it
//! * [`Recovery::on_ack`] for every acceptable segment with an acknowledgement that is in order or tells something by SACK.
//! * Then, and after anything else that could allow sending, the output loop:
//!   1. [`Recovery::retransmission`] while it gives a span: send it (or its first part), tell [`Recovery::on_transmit`].
//!   2. [`Recovery::budget`] bytes of new data, as the peer's window allows: send, tell [`Recovery::on_transmit`].
//!   3. [`Recovery::on_output_done`] with what stopped the loop.
//! * [`Recovery::next_timeout`] is one of the connection's timers; when it is due, [`Recovery::on_timeout`] says why, and the output
//!   loop runs again. If that was [`Expired::Probe`], a tail loss probe is due: see [`Recovery::probe`].

#![allow(unused_variables, dead_code, reason = "bodies follow")]
#![allow(clippy::todo, reason = "bodies follow")]

use crate::position::Span;
use crate::time::{Duration, Instant};

/// What does not change while the connection lasts, but for [`Recovery::set_mss`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of payload in a full segment, options already taken off.
    pub mss: u32,
    /// Whether the peer permits SACK. Without it duplicate acknowledgements are counted (RFC 6582).
    pub sack: bool,
    /// The unit of the timestamp clock, if timestamps are on: how far [`Ack::echo`] may be before the real time of sending.
    pub timestamp_unit: Option<Duration>,
    /// The congestion controller.
    pub controller: crate::cc::Kind,
    /// Whether segments are spread over the round-trip time.
    pub pacing: bool,
    /// Bytes a second that pacing never exceeds (`SO_MAX_PACING_RATE`); turns pacing on.
    pub pacing_rate_max: Option<u64>,
    /// Least retransmission timeout; Linux has 200 ms.
    pub rto_min: Duration,
    /// Largest retransmission timeout; Linux has 120 s.
    pub rto_max: Duration,
    /// Bytes that may be under way after a long silence (RFC 6928): usually ten segments.
    pub initial_window: u64,
    /// Bytes that the congestion window never exceeds (the send buffer, say).
    pub window_max: u64,
    /// Whether the window shrinks while nothing is sent (`tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// Whether tail loss probes are sent (`tcp_early_retrans`); needs SACK.
    pub tail_loss_probe: bool,
    /// Whether a timeout is checked for being spurious (`tcp_frto`).
    pub frto: bool,
    /// Entries of the scoreboard: memory is allocated once.
    pub scoreboard_entries: usize,
}

/// Where to begin: what a session record tells.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// First unacknowledged position.
    pub una: u64,
    /// Next position to send; what is between counts as sent now.
    pub nxt: u64,
    /// Congestion window in bytes; 0: the initial window.
    pub cwnd: u64,
    /// Slow start threshold in bytes; `u64::MAX`: none yet.
    pub ssthresh: u64,
    /// Smoothed round-trip time, if any was measured.
    pub srtt: Option<Duration>,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// The least round-trip time, if any was measured.
    pub min_rtt: Option<Duration>,
}

/// An acknowledgement, checked by the connection: `snd_una <= una <= snd_nxt`.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// All before this position has arrived.
    pub una: u64,
    /// SACK blocks in the order they came in, a D-SACK block among them. Need not be valid.
    pub sack: &'a [Span],
    /// When the segment was sent that the peer's timestamp echo names, in this engine's clock, rounded down to the clock's unit.
    pub echo: Option<Instant>,
    /// Whether the peer saw congestion marks (ECE) on a connection with ECN.
    pub ece: bool,
    /// Whether the segment carries data, SYN or FIN: then it is not a duplicate acknowledgement (RFC 5681, 2).
    pub carries_data: bool,
    /// Whether it changed the peer's window: then it is not a duplicate acknowledgement either.
    pub window_changed: bool,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Bytes by which the first unacknowledged position advanced.
    pub advanced: u64,
    /// Bytes that are now known to have arrived, by either kind of acknowledgement.
    pub delivered: u64,
    /// Bytes that are now deemed lost.
    pub lost: u64,
    /// The window was reduced because of ECE: the next new segment carries CWR (RFC 3168, 6.1.2).
    pub reduced_by_ecn: bool,
    /// A reduction of the window turned out to be needless and was taken back.
    pub undone: bool,
}

/// What is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmission {
    /// Data for the first time.
    New,
    /// Data once more.
    Again,
}

/// Why the output loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The application had no more data (or Nagle holds it).
    Application,
    /// The budget was used up.
    Window,
    /// The peer's window was used up.
    Peer,
}

/// Why a timer ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Pacing lets something go again.
    Pacing,
    /// Segments that could have been reordered are lost now.
    Reordering,
    /// A tail loss probe is due.
    Probe,
    /// The retransmission timeout; all is to be sent again. With how often in a row it is.
    Retransmission(u32),
}

/// What Linux calls the congestion state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing unusual.
    #[default]
    Open,
    /// Something was reported out of order; nothing is lost yet.
    Disorder,
    /// The window shrinks because of a congestion mark.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// The judge of one connection's sending side.
#[derive(Debug)]
pub struct Recovery {
    config: Config,
}

impl Recovery {
    /// Begins where a session record ended. This allocates the scoreboard; nothing after it allocates.
    pub fn new(config: Config, start: Start, now: Instant) -> Recovery {
        todo!()
    }

    /// Takes in an acknowledgement.
    pub fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) -> Acked {
        todo!()
    }

    /// The next span to send again, if there is one and it may go now. Any first part of it may be sent; the whole fits the budget.
    pub fn retransmission(&mut self, now: Instant) -> Option<Span> {
        todo!()
    }

    /// Bytes of new data that may be sent now: a multiple of a full segment, or nothing.
    pub fn budget(&mut self, now: Instant) -> u64 {
        todo!()
    }

    /// The tail loss probe that is due, if one is: the span of the last segment, to be sent again with [`Transmission::Again`] unless
    /// there is new data that the peer's window allows, of which one segment is then sent with [`Transmission::New`], whatever the
    /// budget is. What is transmitted next counts as the probe.
    pub fn probe(&self) -> Option<Span> {
        todo!()
    }

    /// Tells that `span` was just sent.
    pub fn on_transmit(&mut self, now: Instant, span: Span, what: Transmission) {
        todo!()
    }

    /// Tells that the output loop ended, and why.
    pub fn on_output_done(&mut self, now: Instant, stopped: Stopped) {
        todo!()
    }

    /// When [`Recovery::on_timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// Looks whether a timer ran out; nothing if none did. May be called at any time.
    pub fn on_timeout(&mut self, now: Instant) -> Option<Expired> {
        todo!()
    }

    /// The size of a full segment changed. If it became smaller because the path said so (`too_big`), all that is outstanding is sent
    /// again without a reduction of the window (Linux's `tcp_simple_retransmit`).
    pub fn set_mss(&mut self, now: Instant, mss: u32, too_big: bool) {
        todo!()
    }

    /// Retransmission timeouts in a row, for `tcp_retries2`.
    pub fn timeouts(&self) -> u32 {
        todo!()
    }

    /// When the first of the retransmissions was sent that nothing has been heard of since, for `TCP_USER_TIMEOUT`.
    pub fn silent_since(&self) -> Option<Instant> {
        todo!()
    }

    /// Bytes believed to be in the network (RFC 6675's pipe).
    pub fn in_flight(&self) -> u64 {
        todo!()
    }

    /// The congestion window in bytes. Outside of recovery: what to put into a record.
    pub fn cwnd(&self) -> u64 {
        todo!()
    }

    /// The slow start threshold in bytes; `u64::MAX` if there is none yet.
    pub fn ssthresh(&self) -> u64 {
        todo!()
    }

    /// The congestion state.
    pub fn state(&self) -> State {
        todo!()
    }

    /// The round-trip times.
    pub fn rtt(&self) -> &crate::rtt::RttEstimator {
        todo!()
    }

    /// Counters and marks, for information.
    pub fn statistics(&self) -> Statistics {
        todo!()
    }
}

/// What was counted since the import, and what is marked now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes now marked as arrived beyond a gap.
    pub sacked: u64,
    /// Bytes now marked as lost.
    pub lost: u64,
    /// Bytes now sent again and not yet acknowledged.
    pub retransmitted: u64,
    /// Bytes sent again, in all.
    pub retransmitted_total: u64,
    /// Bytes known to have arrived, in all.
    pub delivered_total: u64,
    /// Retransmission timeouts.
    pub timeouts_total: u64,
    /// Fast recoveries entered.
    pub recoveries_total: u64,
    /// Reductions taken back because they were needless.
    pub undone_total: u64,
    /// Tail loss probes sent.
    pub probes_total: u64,
    /// D-SACK blocks received.
    pub duplicates_total: u64,
    /// Whether reordering was ever seen.
    pub reordering_seen: bool,
}
