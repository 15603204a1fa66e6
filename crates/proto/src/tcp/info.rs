//! The values of `getsockopt(TCP_INFO)`. Field names are those of Linux's `struct tcp_info` without
//! the prefix.
//!
//! The embedder fills the program's C structure; times are in that structure's units, which the
//! comments name. Counts of segments are bytes divided by the segment size, rounded up, where the
//! engine counts bytes.

use super::connection::Connection;
use crate::record::{TcpCounters, TimestampUnit};
use crate::recovery;
use crate::time::{Duration, Instant};

/// A connection as `TCP_INFO` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Linux's; the groups say units")]
pub struct TcpInfo {
    // State: Linux's numbers.
    pub state: u8,
    /// 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub backoff: u8,
    /// Bits: 1 timestamps, 2 SACK, 4 window scale, 8 ECN, 0x40 timestamps in microseconds.
    pub options: u8,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    // Microseconds.
    pub rto: u32,
    pub ato: u32,
    // Bytes.
    pub snd_mss: u32,
    pub rcv_mss: u32,
    // Segments.
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    // Milliseconds.
    pub last_data_sent: u32,
    pub last_data_recv: u32,
    pub last_ack_recv: u32,
    // Bytes.
    pub pmtu: u32,
    pub rcv_ssthresh: u32,
    // Microseconds.
    pub rtt: u32,
    pub rttvar: u32,
    // Segments.
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    // Bytes.
    pub advmss: u32,
    // Segments.
    pub reordering: u32,
    // Microseconds.
    pub rcv_rtt: u32,
    // Bytes.
    pub rcv_space: u32,
    // Segments.
    pub total_retrans: u32,
    // Bytes a second.
    pub pacing_rate: u64,
    pub max_pacing_rate: u64,
    // Bytes.
    pub bytes_acked: u64,
    pub bytes_received: u64,
    // Segments.
    pub segs_out: u32,
    pub segs_in: u32,
    // Bytes.
    pub notsent_bytes: u32,
    // Microseconds.
    pub min_rtt: u32,
    // Segments.
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub delivered: u32,
    pub delivered_ce: u32,
    // Bytes.
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    // Counts.
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub rcv_ooopack: u32,
    // Bytes.
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    // Counts.
    pub total_rto: u32,
    pub total_rto_recoveries: u32,
}

fn micros(span: Option<Duration>) -> u32 {
    span.map_or(0, |span| u32::try_from(span.as_micros()).unwrap_or(u32::MAX))
}

fn clipped(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Connection {
    /// Returns the values that `TCP_INFO` shows, as of `now`.
    pub fn info(&self, now: Instant) -> TcpInfo {
        let mut info = self.info_of_state(now);
        self.add_congestion(&mut info);
        self.add_counts(&mut info);
        info
    }

    fn info_of_state(&self, now: Instant) -> TcpInfo {
        let since = |at: Option<Instant>| at.map_or(0, |at| clipped(now.since(at).as_millis()));
        let window = &self.rcv.window;
        TcpInfo {
            state: self.state as u8,
            probes: self.timers.probes,
            options: self.option_bits(),
            snd_wscale: self.snd.scale,
            rcv_wscale: window.scale,
            ato: micros(Some(self.acks.interval())),
            snd_mss: self.sizes.mss,
            rcv_mss: self.acks.segment(),
            last_data_sent: since(self.sent_at),
            last_data_recv: since(self.acks.last_data()),
            last_ack_recv: since(Some(self.heard_at)),
            pmtu: self.sizes.path_mtu,
            rcv_ssthresh: clipped(window.limit()),
            advmss: u32::from(self.sizes.advertised_mss),
            rcv_rtt: micros(window.rtt()),
            rcv_space: clipped(window.space()),
            max_pacing_rate: self.options.max_pacing_rate,
            notsent_bytes: clipped(self.snd.unsent()),
            snd_wnd: clipped(self.snd.wnd),
            rcv_wnd: clipped(window.left(self.rcv.nxt)),
            ..TcpInfo::default()
        }
    }

    fn option_bits(&self) -> u8 {
        let micro = self.stamps.is_some_and(|s| s.unit() == TimestampUnit::Microseconds);
        u8::from(self.stamps.is_some())
            | u8::from(self.sack) << 1
            | u8::from(self.window_scaling) << 2
            | u8::from(self.ecn.negotiated) << 3
            | u8::from(micro) << 6
    }

    fn add_congestion(&self, info: &mut TcpInfo) {
        let (recovery, rtt) = (&self.recovery, self.recovery.rtt());
        let statistics = recovery.statistics();
        let mss = u64::from(self.sizes.mss);
        let segments = |bytes: u64| clipped(bytes.div_ceil(mss));
        info.ca_state = match recovery.state() {
            recovery::State::Open => 0,
            recovery::State::Disorder => 1,
            recovery::State::Reduced => 2,
            recovery::State::Recovery => 3,
            recovery::State::Loss => 4,
        };
        info.retransmits = u8::try_from(recovery.timeouts()).unwrap_or(u8::MAX);
        info.backoff = u8::try_from(rtt.backoff()).unwrap_or(u8::MAX);
        info.rto = micros(Some(rtt.rto()));
        info.rtt = micros(rtt.srtt());
        info.rttvar = micros(Some(rtt.rttvar()));
        info.min_rtt = rtt.min().map_or(u32::MAX, |min| micros(Some(min)));
        info.unacked = segments(self.snd.nxt - self.snd.una);
        info.sacked = segments(statistics.sacked);
        info.lost = segments(statistics.lost);
        info.retrans = segments(statistics.retransmitted);
        info.snd_cwnd = clipped((recovery.cwnd() / mss).max(1));
        info.snd_ssthresh = match recovery.ssthresh() {
            // Linux's TCP_INFINITE_SSTHRESH.
            u64::MAX => 0x7fff_ffff,
            bytes => clipped(bytes / mss),
        };
        info.reordering = self.tuning.reordering;
        info.pacing_rate = self.pacing_rate();
    }

    /// Returns the rate in bytes a second at which Linux would pace (`tcp_update_pacing_rate`).
    /// Linux shows the rate even if pacing is off.
    fn pacing_rate(&self) -> u64 {
        let (recovery, tuning) = (&self.recovery, &self.tuning);
        let Some(srtt) = recovery.rtt().srtt() else { return u64::MAX };
        let early = recovery.cwnd() < recovery.ssthresh() / 2;
        let percent = if early { tuning.pacing_ss_ratio } else { tuning.pacing_ca_ratio };
        let bytes = recovery.cwnd().max(recovery.in_flight());
        let rate = bytes.saturating_mul(u64::from(percent) * 10_000) / srtt.as_micros().max(1);
        rate.min(self.options.max_pacing_rate)
    }

    fn add_counts(&self, info: &mut TcpInfo) {
        let counters = self.totals();
        info.total_retrans = clipped(counters.total_retrans);
        info.bytes_acked = counters.bytes_acked;
        info.bytes_received = counters.bytes_received;
        info.segs_out = clipped(counters.segs_out);
        info.segs_in = clipped(counters.segs_in);
        info.data_segs_in = clipped(counters.data_segs_in);
        info.data_segs_out = clipped(counters.data_segs_out);
        info.delivered = clipped(counters.delivered);
        info.delivered_ce = clipped(counters.delivered_ce);
        info.bytes_sent = counters.bytes_sent;
        info.bytes_retrans = counters.bytes_retrans;
        info.dsack_dups = clipped(counters.dsack_dups);
        info.reord_seen = clipped(counters.reord_seen);
        info.rcv_ooopack = clipped(counters.rcv_ooopack);
        info.total_rto = clipped(counters.total_rto);
        info.total_rto_recoveries = clipped(counters.total_rto_recoveries);
    }

    /// Returns the counters, including those of `recovery` since the import.
    pub(super) fn totals(&self) -> TcpCounters {
        let statistics = self.recovery.statistics();
        let mss = u64::from(self.sizes.mss);
        let mut totals = self.counters;
        totals.delivered += statistics.delivered_total.div_ceil(mss);
        totals.dsack_dups += statistics.duplicates_total.div_ceil(mss);
        totals.reord_seen += u64::from(statistics.reordering_seen);
        totals
    }

    /// Returns the sum of the bytes that the peer acknowledged and the bytes received in order,
    /// over the session's life.
    pub fn bytes_moved(&self) -> u64 {
        self.counters.bytes_acked.wrapping_add(self.counters.bytes_received)
    }
}
