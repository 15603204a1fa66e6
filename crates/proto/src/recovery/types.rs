//! What goes into [`super::Recovery`] and what comes out of it: plain values.

use crate::position::Span;
use crate::time::{Duration, Instant};

/// What does not change while the connection lasts, but for [`set_mss`](super::Recovery::set_mss).
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of payload in a full segment, options already taken off.
    pub mss: u32,
    /// Whether the peer permits SACK. Without it duplicate acknowledgements are counted (RFC 6582).
    pub sack: bool,
    /// The unit of the timestamp clock, if timestamps are on: how far [`Ack::echo`] may be before
    /// the real time of sending.
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
    /// CUBIC's `W_max` in bytes; 0 if it is not known.
    pub w_max: u64,
    /// Whether reordering was seen.
    pub reordering_seen: bool,
    /// Whether a reduction of the window is still to be told by CWR.
    pub cwr_due: bool,
}

/// An acknowledgement, checked by the connection: `snd_una <= una <= snd_nxt`.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// All before this position has arrived.
    pub una: u64,
    /// SACK blocks in the order they came in, a D-SACK block among them. Need not be valid.
    pub sack: &'a [Span],
    /// When the segment was sent that the peer's timestamp echo names, in this engine's clock,
    /// rounded down to the clock's unit.
    pub echo: Option<Instant>,
    /// Whether the peer saw congestion marks (ECE) on a connection with ECN.
    pub ece: bool,
    /// Whether the segment carries data, SYN or FIN: then it is not a duplicate acknowledgement
    /// (RFC 5681, 2).
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
