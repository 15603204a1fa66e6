//! The connection's own timers, and the rate limit of answers to unacceptable segments.
//!
//! Not here: retransmission, tail loss probe, reordering and pacing (`recovery`), the delayed
//! acknowledgement (`acks`), and the actions when a timer expires (`timeouts`).

use crate::time::{Duration, Instant};

/// The timers with their counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Runs while data waits and no outstanding segment will bring an answer. On expiry the data is
    /// sent if it can be, or the window is probed (RFC 9293, 3.8.6.1).
    pub(super) persist: Option<Instant>,
    /// The number of doublings of `persist`.
    pub(super) persist_backoff: u32,
    /// The time of the next keepalive probe to a silent peer (RFC 9293, 3.8.4).
    pub(super) keepalive: Option<Instant>,
    /// The time of the first retransmission timeout since bytes were last acknowledged. Linux's
    /// `retrans_stamp` can be older in a long recovery; with that time, connections that made slow
    /// progress were given up.
    pub(super) silent_since: Option<Instant>,
    /// The end of TIME-WAIT (RFC 9293, 3.6.1).
    pub(super) time_wait: Option<Instant>,
    /// Window and keepalive probes without an answer.
    pub(super) probes: u8,
    /// The time of the first window probe since the peer's window shut (`icsk_probes_tstamp`).
    pub(super) probing_since: Option<Instant>,
    /// A probe without data is to be sent.
    pub(super) probe_due: bool,
    /// The next segment is sent even if it is small, because it was held long enough.
    pub(super) force: bool,
    /// The rate limit of answers to unacceptable segments.
    pub(super) answers: AnswerLimit,
}

impl Timers {
    /// Stops all timers; the rate limit stays.
    pub(super) fn clear(&mut self) {
        *self = Timers { answers: self.answers, ..Timers::default() };
    }
}

/// Limits the rate of answers to unacceptable segments (`tcp_invalid_ratelimit`,
/// `tcp_challenge_ack_limit`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerLimit {
    last: Option<Instant>,
    second: Option<Instant>,
    challenges: u32,
}

impl AnswerLimit {
    /// Returns true and counts an answer if it may be sent now: at most one in `interval`.
    pub(super) fn allows(&mut self, now: Instant, interval: Duration) -> bool {
        if self.last.is_some_and(|last| now.since(last) < interval) {
            return false;
        }
        self.last = Some(now);
        true
    }

    /// Returns true and counts a challenge acknowledgement if it may be sent now: at most `limit`
    /// in a second (RFC 5961, 7), and at most one answer in `interval`.
    pub(super) fn allows_challenge(
        &mut self,
        now: Instant,
        interval: Duration,
        limit: u32,
    ) -> bool {
        if !self.allows(now, interval) {
            return false;
        }
        if self.second.is_none_or(|second| now.since(second) >= Duration::from_secs(1)) {
            self.second = Some(now);
            self.challenges = 0;
        }
        self.challenges += 1;
        self.challenges <= limit
    }
}
