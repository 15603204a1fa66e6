//! The congestion window, and the events that an algorithm reacts to.

use crate::time::{Duration, Instant};

/// The window and its threshold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The congestion window.
    pub cwnd: u64,
    /// The slow start threshold: slow start applies below it; `u64::MAX` until the first
    /// congestion.
    pub ssthresh: u64,
    /// A full segment's payload.
    pub mss: u64,
    /// The upper limit of the window.
    pub max: u64,
}

impl Window {
    /// Returns true in slow start, in which the window doubles in a round trip.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Returns the least value of the threshold (RFC 5681, equation 4).
    pub fn least(&self) -> u64 {
        2 * self.mss
    }

    /// Grows the window by `bytes`, up to the threshold, and returns the bytes that are left for
    /// congestion avoidance.
    pub fn slow_start(&mut self, bytes: u64) -> u64 {
        let grown = self.cwnd.saturating_add(bytes).min(self.ssthresh).min(self.max);
        let used = grown.saturating_sub(self.cwnd);
        self.cwnd = self.cwnd.max(grown);
        if self.in_slow_start() { 0 } else { bytes.saturating_sub(used) }
    }

    /// Sets the window, at least one segment and at most `max`.
    pub fn set(&mut self, cwnd: u64) {
        self.cwnd = cwnd.min(self.max).max(self.mss);
    }
}

/// The facts of an acknowledgement for the controller.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Now.
    pub now: Instant,
    /// Bytes newly known to have arrived.
    pub bytes: u64,
    /// The round-trip time of the segment sent last among them, if it is known.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// The first unacknowledged position.
    pub una: u64,
    /// The next position to send.
    pub nxt: u64,
    /// True if the window limited the sender ([`super::usage`]); otherwise the window does not
    /// grow.
    pub limited: bool,
}

/// The reason for a reduction of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A segment was lost.
    Loss,
    /// A segment was marked (RFC 3168; treated as a loss is).
    Mark,
    /// A retransmission timeout.
    Timeout,
}
