//! The options of the program, the settings of the system, and the counters of a TCP session.
//!
//! Not here: the protocol's state (`record_tcp`). Each field names its socket option of `tcp(7)` or
//! `socket(7)`, or its setting of `Documentation/networking/ip-sysctl`. The defaults are Linux
//! 6.18's. Times are in microseconds here, although some of the kernel's interfaces use other
//! units.

use crate::record_codec::{record, record_enum};
use crate::record_error::RecordError;
use crate::time::Duration;

/// A congestion control's name as `TCP_CONGESTION` has it, padded with zeros.
pub type CongestionName = [u8; 16];

record_enum! {
    /// The congestion controls that the engine runs. A session whose socket has another control
    /// gets the nearest.
    pub enum ControllerKind, "the congestion control is unknown" {
        /// RFC 5681.
        Reno = 0,
        /// RFC 9438.
        Cubic = 1,
    }
}

record! {
    /// Socket options of a TCP session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TcpOptions {
        /// `TCP_NODELAY`.
        pub nodelay: bool,
        /// `TCP_CORK`.
        pub cork: bool,
        /// `TCP_QUICKACK`, as `getsockopt` gives it.
        pub quickack: bool,
        /// `SO_KEEPALIVE`.
        pub keepalive: bool,
        /// `TCP_KEEPIDLE`.
        pub keepalive_idle: Duration,
        /// `TCP_KEEPINTVL`.
        pub keepalive_interval: Duration,
        /// `TCP_KEEPCNT`.
        pub keepalive_count: u8,
        /// `TCP_USER_TIMEOUT`; zero for the system's default behaviour.
        pub user_timeout: Duration,
        /// `SO_SNDBUF` as `getsockopt` gives it, bytes.
        pub sndbuf: u32,
        /// `SO_RCVBUF` as `getsockopt` gives it, bytes.
        pub rcvbuf: u32,
        /// The program set `SO_SNDBUF`, so the buffer does not grow.
        pub sndbuf_locked: bool,
        /// The program set `SO_RCVBUF`, so the buffer does not grow.
        pub rcvbuf_locked: bool,
        /// `SO_RCVLOWAT`, bytes.
        pub rcvlowat: u32,
        /// `TCP_NOTSENT_LOWAT`, bytes; `u32::MAX` for no limit.
        pub notsent_lowat: u32,
        /// `TCP_WINDOW_CLAMP`, bytes; 0 for none.
        pub window_clamp: u32,
        /// `SO_MAX_PACING_RATE`, bytes per second; `u64::MAX` for none.
        pub max_pacing_rate: u64,
        /// `TCP_LINGER2`: the length of FIN-WAIT-2 without a program.
        pub fin_timeout: Duration,
        /// The controller that the engine runs.
        pub controller: ControllerKind,
        /// The name that `TCP_CONGESTION` gives.
        pub congestion: CongestionName,
    }
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions {
            nodelay: false,
            cork: false,
            quickack: true,
            keepalive: false,
            keepalive_idle: Duration::from_secs(7_200),
            keepalive_interval: Duration::from_secs(75),
            keepalive_count: 9,
            user_timeout: Duration::ZERO,
            sndbuf: 87_040,
            rcvbuf: 131_072,
            sndbuf_locked: false,
            rcvbuf_locked: false,
            rcvlowat: 1,
            notsent_lowat: u32::MAX,
            window_clamp: 0,
            max_pacing_rate: u64::MAX,
            fin_timeout: Duration::from_secs(60),
            controller: ControllerKind::Cubic,
            congestion: *b"cubic\0\0\0\0\0\0\0\0\0\0\0",
        }
    }
}

impl TcpOptions {
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        if self.keepalive && (self.keepalive_idle.is_zero() || self.keepalive_interval.is_zero()) {
            return Err(RecordError::Value("a keepalive time is 0"));
        }
        Ok(())
    }
}

record! {
    /// Settings of the system or the network namespace that govern a session: `net.ipv4.tcp_NAME`
    /// unless the comment says otherwise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TcpTuning {
        /// `dsack`: duplicates are reported by D-SACK (RFC 2883).
        pub dsack: bool,
        /// `frto`: spurious timeouts are detected by F-RTO (RFC 5682).
        pub frto: bool,
        /// `recovery`, bits: 1 RACK, 2 its static window, 4 no duplicate-ACK threshold.
        pub recovery: u8,
        /// `early_retrans`: 3 is tail loss probes, 0 none.
        pub early_retrans: u8,
        /// `slow_start_after_idle`.
        pub slow_start_after_idle: bool,
        /// `moderate_rcvbuf`: the receive buffer grows by itself.
        pub moderate_rcvbuf: bool,
        /// `autocorking`: small writes wait while packets are in the interface's queue.
        pub autocorking: bool,
        /// `reordering`: the first threshold in segments.
        pub reordering: u32,
        /// `max_reordering`.
        pub max_reordering: u32,
        /// `retries2`: timeouts in a row before the connection is given up.
        pub retries2: u32,
        /// `orphan_retries`: `retries2` for a connection that no program holds any more; 0 means 8.
        pub orphan_retries: u32,
        /// `rto_min_us` or the route's `rto_min`.
        pub rto_min: Duration,
        /// `rto_max_ms`.
        pub rto_max: Duration,
        /// The longest delay of an acknowledgement; a constant in Linux (200 ms, `TCP_DELACK_MAX`).
        pub delayed_ack_max: Duration,
        /// The shortest delay of an acknowledgement; a constant in Linux (40 ms, `TCP_DELACK_MIN`).
        pub delayed_ack_min: Duration,
        /// `pingpong_thresh`: answers in a row after which a session counts as interactive.
        pub pingpong_thresh: u8,
        /// `challenge_ack_limit`: challenge acknowledgements per second (RFC 5961); `i32::MAX` is
        /// no limit.
        pub challenge_ack_limit: u32,
        /// `invalid_ratelimit`: at most one answer to unacceptable segments in this time.
        pub invalid_ratelimit: Duration,
        /// `rmem`: smallest receive buffer, bytes.
        pub rmem_min: u32,
        /// `rmem`: default.
        pub rmem_default: u32,
        /// `rmem`: largest.
        pub rmem_max: u32,
        /// `wmem`: smallest send buffer, bytes.
        pub wmem_min: u32,
        /// `wmem`: default.
        pub wmem_default: u32,
        /// `wmem`: largest.
        pub wmem_max: u32,
        /// `limit_output_bytes`: bytes that may wait in the interface's queue.
        pub limit_output_bytes: u32,
        /// `min_tso_segs`.
        pub min_tso_segs: u32,
        /// `tso_win_divisor`: no more than this part of the window in one transmit.
        pub tso_win_divisor: u32,
        /// `pacing_ss_ratio`: percent of the current rate that pacing allows in slow start.
        pub pacing_ss_ratio: u32,
        /// `pacing_ca_ratio`: the same otherwise.
        pub pacing_ca_ratio: u32,
        /// `min_rtt_wlen`: the time window of the smallest round-trip time.
        pub min_rtt_window: Duration,
        /// `fin_timeout`.
        pub fin_timeout: Duration,
        /// The length of TIME-WAIT; a constant in Linux (60 s, `TCP_TIMEWAIT_LEN`).
        pub time_wait: Duration,
        /// `min_snd_mss`.
        pub min_snd_mss: u32,
        /// `thin_linear_timeouts`.
        pub thin_linear_timeouts: bool,
        /// `shrink_window`: an announced window may be taken back.
        pub shrink_window: bool,
        /// `workaround_signed_windows`.
        pub workaround_signed_windows: bool,
        /// `rfc1337`: RST does not end TIME-WAIT.
        pub rfc1337: bool,
        /// Pacing is wanted although no option limits the rate (the queue discipline is `fq`, or
        /// the controller needs it).
        pub pacing: bool,
    }
}

impl Default for TcpTuning {
    fn default() -> TcpTuning {
        TcpTuning {
            dsack: true,
            frto: true,
            recovery: 1,
            early_retrans: 3,
            slow_start_after_idle: true,
            moderate_rcvbuf: true,
            autocorking: true,
            reordering: 3,
            max_reordering: 300,
            retries2: 15,
            orphan_retries: 0,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            delayed_ack_max: Duration::from_millis(200),
            delayed_ack_min: Duration::from_millis(40),
            pingpong_thresh: 1,
            challenge_ack_limit: i32::MAX as u32,
            invalid_ratelimit: Duration::from_millis(500),
            rmem_min: 4_096,
            rmem_default: 131_072,
            rmem_max: 6_291_456,
            wmem_min: 4_096,
            wmem_default: 16_384,
            wmem_max: 4_194_304,
            limit_output_bytes: 1_048_576,
            min_tso_segs: 2,
            tso_win_divisor: 3,
            pacing_ss_ratio: 200,
            pacing_ca_ratio: 120,
            min_rtt_window: Duration::from_secs(300),
            fin_timeout: Duration::from_secs(60),
            time_wait: Duration::from_secs(60),
            min_snd_mss: 48,
            thin_linear_timeouts: false,
            shrink_window: false,
            workaround_signed_windows: false,
            rfc1337: false,
            pacing: false,
        }
    }
}

impl TcpTuning {
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        if self.rto_min.is_zero() || self.rto_min > self.rto_max {
            return Err(RecordError::Value("the bounds of the retransmission timeout are none"));
        }
        if self.retries2 == 0 {
            return Err(RecordError::Value("retries2 is 0"));
        }
        if self.delayed_ack_min > self.delayed_ack_max {
            return Err(RecordError::Value("the bounds of delayed acknowledgements are none"));
        }
        Ok(())
    }
}

record! {
    /// The counters of the session's life. Field names are those of `struct tcp_info` without
    /// `tcpi_`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TcpCounters {
        /// Payload bytes that the peer acknowledged.
        pub bytes_acked: u64,
        /// Payload bytes received in order.
        pub bytes_received: u64,
        /// Payload bytes sent, retransmissions included.
        pub bytes_sent: u64,
        /// Payload bytes retransmitted.
        pub bytes_retrans: u64,
        /// Segments sent.
        pub segs_out: u64,
        /// Segments received.
        pub segs_in: u64,
        /// Segments with payload sent.
        pub data_segs_out: u64,
        /// Segments with payload received.
        pub data_segs_in: u64,
        /// Segments retransmitted.
        pub total_retrans: u64,
        /// Segments delivered to the peer, as far as acknowledgements tell.
        pub delivered: u64,
        /// Segments delivered whose acknowledgement echoes a congestion mark.
        pub delivered_ce: u64,
        /// Duplicate SACKs received.
        pub dsack_dups: u64,
        /// Times that reordering was found.
        pub reord_seen: u64,
        /// Segments received out of order.
        pub rcv_ooopack: u64,
        /// Timeouts of the retransmission timer.
        pub total_rto: u64,
        /// Times a timeout began a recovery.
        pub total_rto_recoveries: u64,
    }
}

impl TcpCounters {
    /// Returns the counters, or zeros if one is so high that it could overflow. Counters are for
    /// information only, so they are no reason to refuse a session.
    pub(crate) fn plausible(self) -> TcpCounters {
        let all = [
            self.bytes_acked,
            self.bytes_received,
            self.bytes_sent,
            self.bytes_retrans,
            self.segs_out,
            self.segs_in,
            self.data_segs_out,
            self.data_segs_in,
            self.total_retrans,
            self.delivered,
            self.delivered_ce,
            self.dsack_dups,
            self.reord_seen,
            self.rcv_ooopack,
            self.total_rto,
            self.total_rto_recoveries,
        ];
        let plausible = all.into_iter().all(|count| count <= 1 << 62);
        if plausible { self } else { TcpCounters::default() }
    }
}
