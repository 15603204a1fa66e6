//! RACK (RFC 8985, section 6): a segment is lost if another segment that was sent sufficiently
//! later has arrived.
//!
//! Not here: the marks ([`crate::scoreboard`]), the reordering timer itself and the tail loss probe
//! ([`crate::tlp`]).

use crate::scoreboard::{Delivery, SentRange, Verdict};
use crate::time::{Duration, Instant};

/// Recoveries after which a reordering window that D-SACK had widened falls back (RFC 8985, 6.2
/// step 4).
const PERSIST: u32 = 16;
/// The largest multiple: Linux's `tcp_rack_update_reo_wnd` keeps it in eight bits.
const MULTIPLE_MAX: u64 = 255;

/// RACK's state: the segment sent last among those that have arrived ("the RACK segment"), and the
/// reordering window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// The time when the RACK segment was sent.
    sent: Instant,
    /// The RACK segment's place in the order of sending, and its end, which decide between segments
    /// sent at the same time.
    order: u64,
    end: u64,
    /// The RACK segment's round-trip time.
    rtt: Duration,
    /// True if a segment was delivered since the last [`Rack::take_advanced`].
    advanced: bool,
    /// True once a segment was delivered.
    known: bool,
    reordering_seen: bool,
    /// The reordering window in quarters of the least round-trip time.
    multiple: u64,
    /// Recoveries left until `multiple` is 1 again.
    persist: u32,
    /// The position that ends the round trip in which D-SACK last widened the window.
    dsack_round: Option<u64>,
}

impl Rack {
    /// Creates the state of a connection of which nothing is known.
    pub fn new() -> Rack {
        Rack { multiple: 1, ..Rack::default() }
    }

    /// Returns true if reordering was ever seen.
    pub fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// Notes reordering: segments deemed lost had only been overtaken, and a reduction turned out
    /// needless. RFC 8985 detects reordering only by segments sent once; Linux counts this case as
    /// well (`tcp_try_undo_partial`, D-SACK in `tcp_sacktag_one`).
    pub fn on_needless(&mut self) {
        self.reordering_seen = true;
    }

    /// Processes the delivery of an entry or a part of one (steps 1 to 3). `min_rtt` tells an
    /// acknowledgement of the first transmission from one of the retransmission.
    pub fn on_delivered(&mut self, now: Instant, delivery: &Delivery, min_rtt: Option<Duration>) {
        let entry = &delivery.entry;
        let rtt = now.since(entry.sent_first);
        if entry.again {
            // Step 2: a time below the least round-trip time means that the first transmission is
            // acknowledged, not the retransmission.
            if min_rtt.is_some_and(|min| rtt < min) {
                return;
            }
        } else if delivery.below_fack {
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

    /// Widens the reordering window, which may have been too small because a D-SACK block arrived
    /// (step 4): by a quarter of the least round-trip time, at most once in a round trip.
    pub fn on_dsack(&mut self, una: u64, nxt: u64) {
        if self.dsack_round.is_none_or(|end| una >= end) {
            self.dsack_round = Some(nxt);
            self.multiple = (self.multiple + 1).min(MULTIPLE_MAX);
            self.persist = PERSIST;
        }
    }

    /// Tells that a recovery ended; after sixteen of them the window falls back.
    pub fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiple = 1;
        }
    }

    /// Returns the reordering window (step 4): the time by which a delivered segment must have been
    /// sent later than another for the other to be lost. `eager` is true in recovery, or if as much
    /// was reported above the gap as by three duplicate acknowledgements; the window is then zero
    /// while no reordering was seen.
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

    /// Makes the next [`Rack::take_advanced`] true, because marks were taken away and all entries
    /// must be judged again.
    pub fn reconsider(&mut self) {
        self.advanced = self.known;
    }

    /// Returns true if a segment arrived since the last call; then the entries have to be judged
    /// again.
    pub fn take_advanced(&mut self) -> bool {
        core::mem::take(&mut self.advanced)
    }

    /// Judges an entry (step 5). Raises `wait` to the time after which an entry that may yet arrive
    /// counts as lost.
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

    /// Returns true if an entry is old enough to be deemed lost when the retransmission timer
    /// expires (section 6.3).
    pub fn is_old(&self, now: Instant, entry: &SentRange, window: Duration) -> bool {
        entry.sent_last + self.rtt + window <= now
    }
}

#[cfg(test)]
#[path = "rack_tests.rs"]
mod tests;
