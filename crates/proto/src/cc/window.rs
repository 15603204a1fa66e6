//! The congestion window, and what an algorithm is told of the network.

use crate::time::{Duration, Instant};

/// The window and its threshold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The congestion window.
    pub cwnd: u64,
    /// Below it, slow start; `u64::MAX` until the first congestion.
    pub ssthresh: u64,
    /// A full segment's payload.
    pub mss: u64,
    /// The window never exceeds this.
    pub max: u64,
}

impl Window {
    /// Whether the window doubles in a round trip.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// The least value of the threshold (RFC 5681, equation 4).
    pub fn least(&self) -> u64 {
        2 * self.mss
    }

    /// Grows by `bytes` while below the threshold, and gives what is left of them at the threshold.
    pub fn slow_start(&mut self, bytes: u64) -> u64 {
        let grown = self.cwnd.saturating_add(bytes).min(self.ssthresh).min(self.max);
        let used = grown.saturating_sub(self.cwnd);
        self.cwnd = self.cwnd.max(grown);
        if self.in_slow_start() { 0 } else { bytes.saturating_sub(used) }
    }

    /// Sets the window, within its limit.
    pub fn set(&mut self, cwnd: u64) {
        self.cwnd = cwnd.min(self.max).max(self.mss);
    }
}

/// What an acknowledgement tells the controller.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Now.
    pub now: Instant,
    /// Bytes newly known to have arrived.
    pub bytes: u64,
    /// The round-trip time of the latest of them, if it is known.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// The first unacknowledged position.
    pub una: u64,
    /// The next position to send.
    pub nxt: u64,
    /// Whether the window was what limited the sender ([`super::usage`]); otherwise it does not
    /// grow.
    pub limited: bool,
}

/// Why the window is to be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A segment was lost.
    Loss,
    /// A segment was marked (RFC 3168; treated as a loss is).
    Mark,
    /// A retransmission timeout.
    Timeout,
}
