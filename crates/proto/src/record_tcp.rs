//! The TCP part of a session record: sequence numbers, windows, estimates, queues.
//!
//! Field names are RFC 9293's, 7323's and 6298's; where Linux has another name (`tcp(7)`, `struct
//! tcp_info`), the comment gives it. Options of the program and settings of the system are in
//! `record_tcp_options`, the envelope in `record`.

use crate::record_codec::{
    Field, Output, QUEUE_MAX, Reader, put_list, record, record_enum, take_list,
};
use crate::record_error::RecordError;
pub use crate::record_tcp_options::{
    CongestionName, ControllerKind, TcpCounters, TcpOptions, TcpTuning,
};
use crate::time::Duration;
use alloc::vec::Vec;

/// The largest shift that window scaling knows (RFC 7323, 2.3).
pub(crate) const WINDOW_SCALE_MAX: u8 = 14;

record_enum! {
    /// States of a connection (RFC 9293, 3.3.2) that a record can have, with Linux's numbers
    /// (`tcpi_state`).
    pub enum TcpState, "the TCP state is not one that moves" {
        /// Data flows both ways.
        Established = 1,
        /// This end closed; its FIN waits behind data or is sent, and is not acknowledged.
        FinWait1 = 4,
        /// This end closed and the peer acknowledged the FIN; the peer may still send.
        FinWait2 = 5,
        /// Both ends closed; only old segments can still arrive.
        TimeWait = 6,
        /// The connection is over: reset, timed out, or both ends closed and TIME-WAIT has passed.
        Closed = 7,
        /// The peer closed; this end may still send.
        CloseWait = 8,
        /// Both ends closed, the peer first; this end's FIN is not acknowledged.
        LastAck = 9,
        /// Both ends closed at once; this end's FIN is not acknowledged.
        Closing = 11,
    }
}

impl TcpState {
    /// Returns true if the peer's FIN was received; `rcv_nxt` then counts the FIN.
    pub const fn peer_closed(self) -> bool {
        matches!(
            self,
            TcpState::CloseWait | TcpState::LastAck | TcpState::Closing | TcpState::TimeWait
        )
    }

    /// Returns true if this end has closed its direction, even if its FIN is not sent yet.
    pub const fn locally_closed(self) -> bool {
        !matches!(self, TcpState::Established | TcpState::CloseWait)
    }
}

record_enum! {
    /// The reason why a connection ended without two FINs.
    pub enum CloseReason, "the reason of closing is unknown" {
        /// The peer sent RST (`ECONNRESET`).
        Reset = 1,
        /// The peer did not answer for too long (`ETIMEDOUT`).
        TimedOut = 2,
        /// This end gave up and sent RST (`ECONNABORTED`).
        Aborted = 3,
        /// The peer sent RST after its FIN (`EPIPE`).
        BrokenPipe = 4,
    }
}

record_enum! {
    /// The length of a tick of the timestamp clock (RFC 7323, 4; microseconds: Linux 6.7,
    /// `TCP_RTO_MIN_US` routes).
    pub enum TimestampUnit, "the unit of timestamps is unknown" {
        /// One millisecond.
        Milliseconds = 1,
        /// One microsecond.
        Microseconds = 2,
    }
}

record! {
    /// Timestamps option in use (RFC 7323, 3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TimestampsRecord {
        /// The length of a tick.
        pub unit: TimestampUnit,
        /// The value that this end would send as `TSval` now (`TCP_TIMESTAMP`, without its lowest
        /// bit that Linux uses for the unit).
        pub value: u32,
        /// `TS.Recent`: the value to be echoed.
        pub recent: u32,
        /// The time since `recent` was taken; zero if it is not known.
        pub recent_age: Duration,
        /// True if `recent` has been taken from a segment. If false, the value of the next
        /// acceptable segment is taken without a check.
        pub recent_valid: bool,
    }
}

record! {
    /// Explicit congestion notification (RFC 3168).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EcnRecord {
        /// Both ends agreed to use ECN.
        pub negotiated: bool,
        /// A mark was received and the peer's CWR was not: acknowledgements carry ECE.
        pub echo: bool,
        /// The window was reduced for any reason: the next new data carries CWR.
        pub reduced: bool,
    }
}

record! {
    /// Bytes that arrived beyond a gap. The kernel's repair interface cannot take such bytes, so a
    /// move to the kernel drops them and the peer sends them again.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OutOfOrder {
        /// Sequence number of the first byte.
        pub sequence: u32,
        /// The bytes.
        pub bytes: Vec<u8>,
    }
}

/// A connection's state. Sequence numbers are as on the wire; windows are in bytes, unscaled.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpRecord {
    /// State of the connection.
    pub state: TcpState,
    /// The reason why the connection ended without two FINs; `state` is then `Closed`.
    pub closed: Option<CloseReason>,
    /// The program has shut down receiving (`SHUT_RD`).
    pub receive_shutdown: bool,
    /// An acknowledgement is owed to the peer.
    pub ack_pending: bool,
    /// Oldest sequence number not acknowledged, at which `send_queue` begins.
    pub snd_una: u32,
    /// Next sequence number to send. Counts this end's FIN once the FIN was sent.
    pub snd_nxt: u32,
    /// The peer's window in bytes, from `snd_una`.
    pub snd_wnd: u32,
    /// Sequence number of the segment that last set `snd_wnd` (`snd_wl1`).
    pub snd_wl1: u32,
    /// Acknowledgement number of that segment (`snd_wl2`). Linux does not keep it; a record made
    /// from a socket has `snd_una` here.
    pub snd_wl2: u32,
    /// The largest window that the peer ever offered, bytes.
    pub max_window: u32,
    /// Next sequence number expected. Counts the peer's FIN once the FIN was received.
    pub rcv_nxt: u32,
    /// The window last announced to the peer, in bytes from `rcv_wup`.
    pub rcv_wnd: u32,
    /// `rcv_nxt` when the window was last announced.
    pub rcv_wup: u32,
    /// The maximum segment size that the peer announced, options not deducted (RFC 9293, 3.7.1).
    pub peer_mss: u16,
    /// The maximum segment size that this end announced (`tcpi_advmss`).
    pub advertised_mss: u16,
    /// `TCP_MAXSEG` set by the program; 0 if not.
    pub user_mss: u16,
    /// Path MTU in bytes (`tcpi_pmtu`).
    pub path_mtu: u32,
    /// True if window scaling was agreed; if not, both shifts are 0.
    pub window_scaling: bool,
    /// Shift of the peer's windows (`tcpi_snd_wscale`).
    pub snd_wscale: u8,
    /// Shift of this end's windows (`tcpi_rcv_wscale`).
    pub rcv_wscale: u8,
    /// Selective acknowledgements were agreed (RFC 2018).
    pub sack: bool,
    /// Timestamps, if they were agreed.
    pub timestamps: Option<TimestampsRecord>,
    /// The state of explicit congestion notification.
    pub ecn: EcnRecord,
    /// Smoothed round-trip time; zero if there was no sample (`tcpi_rtt`).
    pub srtt: Duration,
    /// Mean deviation of the round-trip time (`tcpi_rttvar`).
    pub rttvar: Duration,
    /// The smallest sample in the recent time window; zero if there was none (`tcpi_min_rtt`).
    pub min_rtt: Duration,
    /// Congestion window in bytes (`tcpi_snd_cwnd` times the segment size).
    pub cwnd: u32,
    /// Slow-start threshold in bytes; `u32::MAX` while there is none.
    pub ssthresh: u32,
    /// CUBIC's `W_max` in bytes (RFC 9438, 4.1.2); 0 if there was no loss or another controller
    /// runs.
    pub w_max: u32,
    /// Reordering seen, in segments; 3 at first (`tcpi_reordering`).
    pub reordering: u32,
    /// The number of doublings of the retransmission timeout (`tcpi_backoff`). For information: the
    /// new home begins without doubling, as the kernel does, since it may reach the peer although
    /// the old home did not.
    pub backoff: u8,
    /// Window or keepalive probes sent without an answer (`tcpi_probes`).
    pub probes: u8,
    /// Time since the last segment of the peer (`tcpi_last_ack_recv`).
    pub idle: Duration,
    /// Time since the oldest unanswered transmission; zero if nothing is outstanding. The user
    /// timeout counts from that transmission.
    pub stalled: Duration,
    /// The program's socket options.
    pub options: TcpOptions,
    /// The settings of the system or the network namespace.
    pub tuning: TcpTuning,
    /// The counters so far.
    pub counters: TcpCounters,
    /// Bytes received in order and not read. They end at `rcv_nxt`, or before the FIN.
    pub receive_queue: Vec<u8>,
    /// Blocks of bytes received beyond a gap, in order and not adjacent.
    pub out_of_order: Vec<OutOfOrder>,
    /// Bytes from `snd_una` on: first those sent and not acknowledged, then those not sent. See
    /// [`TcpRecord::sent`].
    pub send_queue: Vec<u8>,
}

impl Default for TcpRecord {
    /// An established connection on Ethernet with all sequence numbers 0, nothing queued, and
    /// Linux's settings.
    fn default() -> TcpRecord {
        TcpRecord {
            state: TcpState::Established,
            closed: None,
            receive_shutdown: false,
            ack_pending: false,
            snd_una: 0,
            snd_nxt: 0,
            snd_wnd: 65_535,
            snd_wl1: 0,
            snd_wl2: 0,
            max_window: 65_535,
            rcv_nxt: 0,
            rcv_wnd: 65_535,
            rcv_wup: 0,
            peer_mss: 1_460,
            advertised_mss: 1_460,
            user_mss: 0,
            path_mtu: 1_500,
            window_scaling: false,
            snd_wscale: 0,
            rcv_wscale: 0,
            sack: false,
            timestamps: None,
            ecn: EcnRecord::default(),
            srtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            min_rtt: Duration::ZERO,
            cwnd: 14_600,
            ssthresh: u32::MAX,
            w_max: 0,
            reordering: 3,
            backoff: 0,
            probes: 0,
            idle: Duration::ZERO,
            stalled: Duration::ZERO,
            options: TcpOptions::default(),
            tuning: TcpTuning::default(),
            counters: TcpCounters::default(),
            receive_queue: Vec::new(),
            out_of_order: Vec::new(),
            send_queue: Vec::new(),
        }
    }
}

impl TcpRecord {
    /// Returns the number of bytes of `send_queue` that have been sent.
    pub fn sent(&self) -> usize {
        (self.snd_nxt.wrapping_sub(self.snd_una) as usize).min(self.send_queue.len())
    }

    /// Checks the TCP part for [`SessionRecord::check`](crate::record::SessionRecord::check).
    pub(crate) fn check(&self, ipv4: bool) -> Result<(), RecordError> {
        self.check_sizes(ipv4)?;
        self.check_sending()?;
        self.check_receiving()?;
        self.options.check()?;
        self.tuning.check()
    }

    fn check_sizes(&self, ipv4: bool) -> Result<(), RecordError> {
        if self.snd_wscale > WINDOW_SCALE_MAX || self.rcv_wscale > WINDOW_SCALE_MAX {
            return Err(RecordError::Value("a window scale is above 14"));
        }
        if !self.window_scaling && (self.snd_wscale | self.rcv_wscale) != 0 {
            return Err(RecordError::Inconsistent("windows are not scaled, but there is a scale"));
        }
        if self.peer_mss < 48 {
            return Err(RecordError::Value("the peer's segment size is below 48"));
        }
        let headers_and_some = if ipv4 { 68 } else { 1280 };
        if self.path_mtu < headers_and_some {
            return Err(RecordError::Value("the path MTU is below the protocol's minimum"));
        }
        if self.cwnd == 0 {
            return Err(RecordError::Value("the congestion window is 0"));
        }
        if self.send_queue.len() > QUEUE_MAX || self.receive_queue.len() > QUEUE_MAX {
            return Err(RecordError::Value("a queue is longer than 64 MiB"));
        }
        Ok(())
    }

    fn check_sending(&self) -> Result<(), RecordError> {
        use TcpState::*;
        let sent = self.snd_nxt.wrapping_sub(self.snd_una) as usize;
        let queued = self.send_queue.len();
        let fin_possible = matches!(self.state, FinWait1 | Closing | LastAck | Closed);
        if sent > queued + usize::from(fin_possible) {
            return Err(RecordError::Inconsistent("more was sent than the send queue has"));
        }
        if matches!(self.state, FinWait2 | TimeWait) && (sent, queued) != (0, 0) {
            return Err(RecordError::Inconsistent("our FIN is acknowledged, but data is not"));
        }
        if (self.closed.is_some()) && self.state != Closed {
            return Err(RecordError::Inconsistent("a connection that has failed is not closed"));
        }
        let window_max = if self.window_scaling { 65_535 << self.snd_wscale } else { 65_535 };
        if self.snd_wnd > window_max || self.max_window > window_max {
            return Err(RecordError::Inconsistent(
                "the peer's window is larger than its scale allows",
            ));
        }
        Ok(())
    }

    fn check_receiving(&self) -> Result<(), RecordError> {
        if self.rcv_nxt.wrapping_sub(self.rcv_wup) > 1 << 30 || self.rcv_wnd > 1 << 30 {
            return Err(RecordError::Inconsistent("the receive window lies too far off"));
        }
        let mut end = self.rcv_nxt;
        for block in &self.out_of_order {
            let distance = block.sequence.wrapping_sub(end);
            if distance == 0 || distance > 1 << 30 {
                return Err(RecordError::Inconsistent("bytes out of order are not beyond a gap"));
            }
            if block.bytes.is_empty() || block.bytes.len() > QUEUE_MAX {
                return Err(RecordError::Value("bytes out of order are none, or too many"));
            }
            end = block.sequence.wrapping_add(block.bytes.len() as u32);
            if end.wrapping_sub(self.rcv_nxt) > 1 << 30 {
                return Err(RecordError::Inconsistent("bytes out of order lie too far off"));
            }
        }
        if self.state.peer_closed() && !self.out_of_order.is_empty() {
            return Err(RecordError::Inconsistent("bytes out of order after the peer's FIN"));
        }
        Ok(())
    }
}

/// Lists the fields of `TcpRecord` in the order of their encoding; the queues come last.
macro_rules! for_each_field {
    ($apply:ident) => {
        $apply!(
            state,
            closed,
            receive_shutdown,
            ack_pending,
            snd_una,
            snd_nxt,
            snd_wnd,
            snd_wl1,
            snd_wl2,
            max_window,
            rcv_nxt,
            rcv_wnd,
            rcv_wup,
            peer_mss,
            advertised_mss,
            user_mss,
            path_mtu,
            window_scaling,
            snd_wscale,
            rcv_wscale,
            sack,
            timestamps,
            ecn,
            srtt,
            rttvar,
            min_rtt,
            cwnd,
            ssthresh,
            w_max,
            reordering,
            backoff,
            probes,
            idle,
            stalled,
            options,
            tuning,
            counters,
            receive_queue,
            send_queue
        )
    };
}

impl Field for TcpRecord {
    fn put(&self, out: &mut Output<'_>) {
        macro_rules! put_all {
            ($($field:ident),*) => { $(self.$field.put(out);)* };
        }
        for_each_field!(put_all);
        put_list(&self.out_of_order, out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        macro_rules! take_all {
            ($($field:ident),*) => {
                TcpRecord {
                    $($field: Field::take(reader)?,)*
                    out_of_order: take_list(reader)?,
                }
            };
        }
        Ok(for_each_field!(take_all))
    }
}
