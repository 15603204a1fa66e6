//! The timers of a connection that are nobody else's, and the limit of answers.
//!
//! Retransmission, tail loss probe, reordering and pacing are `recovery`'s, the delayed
//! acknowledgement is `acks`'s. Not here: what happens when one runs out; see `timeouts`.

use crate::time::{Duration, Instant};

/// Timers and what they count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Data waits, nothing is under way that could bring an answer: look whether it can go, or
    /// probe the window (RFC 9293, 3.8.6.1).
    pub(super) persist: Option<Instant>,
    /// How often `persist` has doubled.
    pub(super) persist_backoff: u32,
    /// When the peer has been silent for long: ask whether it is there (RFC 9293, 3.8.4).
    pub(super) keepalive: Option<Instant>,
    /// When the retransmission timer first ran out since something new was acknowledged. Linux's
    /// `retrans_stamp` is older in a long recovery, and connections that got on slowly were given
    /// up for it.
    pub(super) silent_since: Option<Instant>,
    /// When TIME-WAIT ends (RFC 9293, 3.6.1).
    pub(super) time_wait: Option<Instant>,
    /// Probes of either kind without an answer.
    pub(super) probes: u8,
    /// When the first window probe was sent since the peer's window shut (`icsk_probes_tstamp`).
    pub(super) probing_since: Option<Instant>,
    /// A probe without data is to be sent.
    pub(super) probe_due: bool,
    /// The next segment goes whatever its size: it was held long enough.
    pub(super) force: bool,
    /// Answers to what should not have come.
    pub(super) answers: AnswerLimit,
}

impl Timers {
    /// Stops everything.
    pub(super) fn clear(&mut self) {
        *self = Timers { answers: self.answers, ..Timers::default() };
    }
}

/// Holds back answers to segments that should not have come (`tcp_invalid_ratelimit`,
/// `tcp_challenge_ack_limit`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerLimit {
    last: Option<Instant>,
    second: Option<Instant>,
    challenges: u32,
}

impl AnswerLimit {
    /// Whether one more answer may be given now, at most one in `interval`.
    pub(super) fn allows(&mut self, now: Instant, interval: Duration) -> bool {
        if self.last.is_some_and(|last| now.since(last) < interval) {
            return false;
        }
        self.last = Some(now);
        true
    }

    /// The same for a challenge, of which there may be `limit` in a second (RFC 5961, 7).
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
