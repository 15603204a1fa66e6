//! RACK (RFC 8985, section 6): a segment is lost if one that was sent sufficiently later has
//! arrived.
//!
//! Not here: the marks ([`crate::scoreboard`]), the reordering timer itself and the tail loss probe
//! ([`crate::tlp`]).

use crate::scoreboard::{Delivery, SentRange, Verdict};
use crate::time::{Duration, Instant};

/// Recoveries after which a reordering window that D-SACK had widened falls back (RFC 8985, 6.2
/// step 4).
const PERSIST: u32 = 16;
/// Where the widening stops: Linux's `tcp_rack_update_reo_wnd` keeps it in eight bits.
const MULTIPLE_MAX: u64 = 255;

/// What RACK knows: the segment that was sent last of all that have arrived, and how much
/// reordering to allow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// When that segment was sent.
    sent: Instant,
    /// Its place in the order of sending, and its end, which decide between segments sent at the
    /// same time.
    order: u64,
    end: u64,
    /// How long it took.
    rtt: Duration,
    /// Whether anything was delivered since [`Rack::take_advanced`].
    advanced: bool,
    /// Whether anything was ever delivered.
    known: bool,
    reordering_seen: bool,
    /// The reordering window in quarters of the least round-trip time.
    multiple: u64,
    /// Recoveries left until `multiple` is 1 again.
    persist: u32,
    /// The round trip in which D-SACK last widened the window ends with this position.
    dsack_round: Option<u64>,
}

impl Rack {
    /// Nothing known yet.
    pub fn new() -> Rack {
        Rack { multiple: 1, ..Rack::default() }
    }

    /// Whether reordering was ever seen.
    pub fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// What was deemed lost had only been overtaken: a reduction turned out needless. RFC 8985 sees
    /// reordering only in what was sent once; Linux takes this for it as well
    /// (`tcp_try_undo_partial`, D-SACK in `tcp_sacktag_one`).
    pub fn on_needless(&mut self) {
        self.reordering_seen = true;
    }

    /// A part of the row was delivered (steps 1 to 3). `min_rtt` tells an acknowledgement of the
    /// first transmission from one of the second.
    pub fn on_delivered(&mut self, now: Instant, delivery: &Delivery, min_rtt: Option<Duration>) {
        let entry = &delivery.entry;
        let rtt = now.since(entry.sent_first);
        if entry.again {
            // Too soon to be the answer to the retransmission.
            if min_rtt.is_some_and(|min| rtt < min) {
                return;
            }
        } else if delivery.late {
            self.reordering_seen = true;
        }
        let place = (entry.sent_first, entry.order, entry.span.end);
        if !self.known || place > (self.sent, self.order, self.end) {
            (self.sent, self.order, self.end) = place;
        }
        self.rtt = rtt;
        self.advanced = true;
        self.known = true;
    }

    /// A D-SACK block arrived: the window may have been too small (step 4). Once in a round trip it
    /// grows by a quarter of the least round-trip time.
    pub fn on_dsack(&mut self, una: u64, nxt: u64) {
        if self.dsack_round.is_none_or(|end| una >= end) {
            self.dsack_round = Some(nxt);
            self.multiple = (self.multiple + 1).min(MULTIPLE_MAX);
            self.persist = PERSIST;
        }
    }

    /// A recovery ended.
    pub fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiple = 1;
        }
    }

    /// How much later than another a segment must have been sent, and have arrived, for the other
    /// to be lost. `eager`: in recovery, or enough was reported above the gap for three duplicate
    /// acknowledgements; then none while no reordering was seen.
    pub fn window(
        &self,
        eager: bool,
        min_rtt: Option<Duration>,
        srtt: Option<Duration>,
    ) -> Duration {
        if !self.reordering_seen && eager {
            return Duration::ZERO;
        }
        let quarter = min_rtt.unwrap_or(Duration::from_millis(1)).divided_by(4);
        quarter.times(self.multiple).min(srtt.unwrap_or(Duration::MAX))
    }

    /// The marks were taken away: judge again even if nothing new arrives.
    pub fn reconsider(&mut self) {
        self.advanced = self.known;
    }

    /// Whether anything arrived since this was asked last; then the row is to be judged again.
    pub fn take_advanced(&mut self) -> bool {
        core::mem::take(&mut self.advanced)
    }

    /// Judges an entry (step 5), and keeps in `wait` how long it takes at most until one that may
    /// yet arrive is lost.
    pub fn judge(
        &self,
        now: Instant,
        entry: &SentRange,
        window: Duration,
        wait: &mut Option<Duration>,
    ) -> Verdict {
        let place = (entry.sent_last, entry.order, entry.span.end);
        let later = (self.sent, self.order, self.end) > place;
        if !self.known || !later {
            return Verdict::Later;
        }
        let left =
            (entry.sent_last + self.rtt + window).as_micros().saturating_sub(now.as_micros());
        if left == 0 {
            return Verdict::Lost;
        }
        let left = Duration::from_micros(left);
        *wait = Some(wait.map_or(left, |longest| longest.max(left)));
        Verdict::Wait
    }

    /// Whether an entry is old enough to be deemed lost when the retransmission timer ran out
    /// (section 6.3).
    pub fn is_old(&self, now: Instant, entry: &SentRange, window: Duration) -> bool {
        entry.sent_last + self.rtt + window <= now
    }
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
