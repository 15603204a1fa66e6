//! The arguments and results of [`super::Recovery`]: plain values without behaviour.

use crate::position::Span;
use crate::time::{Duration, Instant};

/// The settings of a connection. Only `mss` changes later, by
/// [`set_mss`](super::Recovery::set_mss).
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of payload in a full segment, options already taken off.
    pub mss: u32,
    /// True if the peer permits SACK. Without SACK duplicate acknowledgements are counted (RFC
    /// 6582).
    pub sack: bool,
    /// The unit of the timestamp clock, if timestamps are on: [`Ack::echo`] may be up to one unit
    /// before the real time of sending.
    pub timestamp_unit: Option<Duration>,
    /// The congestion controller.
    pub controller: crate::cc::Kind,
    /// True if segments are spread over the round-trip time.
    pub pacing: bool,
    /// Bytes a second that pacing never exceeds (`SO_MAX_PACING_RATE`); turns pacing on.
    pub pacing_rate_max: Option<u64>,
    /// Least retransmission timeout; Linux has 200 ms.
    pub rto_min: Duration,
    /// Largest retransmission timeout; Linux has 120 s.
    pub rto_max: Duration,
    /// The congestion window after a long silence in bytes: usually ten segments (RFC 6928).
    pub initial_window: u64,
    /// The upper limit of the congestion window in bytes, such as the size of the send buffer.
    pub window_max: u64,
    /// True if the window shrinks while nothing is sent (`tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// True if tail loss probes are sent (`tcp_early_retrans`). They need SACK.
    pub tail_loss_probe: bool,
    /// True if F-RTO checks timeouts for being spurious (`tcp_frto`).
    pub frto: bool,
    /// The number of scoreboard entries, whose memory is allocated once.
    pub scoreboard_entries: usize,
}

/// The state at the beginning, from a session record.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// First unacknowledged position.
    pub una: u64,
    /// Next position to send. The bytes from `una` to `nxt` count as sent now.
    pub nxt: u64,
    /// Congestion window in bytes; 0 for the initial window.
    pub cwnd: u64,
    /// Slow start threshold in bytes; `u64::MAX` if there is none yet.
    pub ssthresh: u64,
    /// Smoothed round-trip time, if any was measured.
    pub srtt: Option<Duration>,
    /// Mean deviation of the round-trip time.
    pub rttvar: Duration,
    /// The least round-trip time, if any was measured.
    pub min_rtt: Option<Duration>,
    /// CUBIC's `W_max` in bytes; 0 if it is not known.
    pub w_max: u64,
    /// True if reordering was seen.
    pub reordering_seen: bool,
    /// True if a CWR is still to tell the peer of a reduction of the window.
    pub cwr_due: bool,
}

/// An acknowledgement, checked by the connection: `snd_una <= una <= snd_nxt`.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// The acknowledged position: all bytes before it have arrived.
    pub una: u64,
    /// SACK blocks in the order of the option, including a D-SACK block. Invalid blocks are
    /// ignored.
    pub sack: &'a [Span],
    /// The time of sending of the segment whose timestamp the peer echoes, rounded down to the
    /// timestamp clock's unit.
    pub echo: Option<Instant>,
    /// True if the peer reports congestion marks (ECE) on a connection with ECN.
    pub ece: bool,
    /// True if the segment carries data, SYN or FIN. Such a segment is not a duplicate
    /// acknowledgement (RFC 5681, 2).
    pub carries_data: bool,
    /// True if the segment changed the peer's window. Such a segment is not a duplicate
    /// acknowledgement either.
    pub window_changed: bool,
}

/// The effects of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Bytes by which the first unacknowledged position advanced.
    pub advanced: u64,
    /// Bytes newly known to have arrived, by acknowledgement number or by SACK.
    pub delivered: u64,
    /// Bytes newly deemed lost.
    pub lost: u64,
    /// A reduction of the window turned out to be needless and was taken back.
    pub undone: bool,
}

/// The kind of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmission {
    /// Data for the first time.
    New,
    /// A retransmission.
    Again,
}

/// The reason why the output loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The application had no more data (or Nagle holds it).
    Application,
    /// The budget was used up.
    Window,
    /// The peer's window was used up.
    Peer,
}

/// The cause of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Pacing allows the next burst.
    Pacing,
    /// Segments that could have been reordered are lost now.
    Reordering,
    /// A tail loss probe is due.
    Probe,
    /// The retransmission timeout: outstanding bytes are to be sent again. The number counts the
    /// timeouts in a row.
    Retransmission(u32),
}

/// The congestion state, with the states of Linux (`enum tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing unusual.
    #[default]
    Open,
    /// Bytes were reported out of order; nothing is deemed lost yet.
    Disorder,
    /// The window shrinks because of a congestion mark (Linux: CWR).
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// Counters since the import, and the sums of the current marks.
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
    /// True if reordering was ever seen.
    pub reordering_seen: bool,
}
