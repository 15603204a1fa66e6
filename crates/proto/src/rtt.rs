//! Round-trip times and the retransmission timeout computed from them (RFC 6298), with Linux's
//! bounds.
//!
//! Not here: the choice of the segments whose times count (Karn's rule; [`crate::scoreboard`]), and
//! the timer itself ([`crate::recovery`]).

use crate::time::{Duration, Instant};

/// Length of the time window of the least round-trip time (Linux: `tcp_min_rtt_wlen`).
const MIN_WINDOW: Duration = Duration::from_secs(300);
/// The timeout before anything was measured (RFC 6298, 2.1).
const RTO_INITIAL: Duration = Duration::from_secs(1);

/// Smoothed round-trip time, its deviation, the timeout, and the least round-trip time of the last
/// minutes. As in Linux the smoothed values are kept in eighths and quarters of a microsecond, so
/// that rounding does not stop their convergence on short paths.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    rto_min: u64,
    rto_max: Duration,
    /// Eighths of a microsecond; 0: nothing measured.
    srtt8: u64,
    /// Four mean deviations, smoothed with every sample.
    deviation4: u64,
    /// The largest `deviation4` of this round trip, `rto_min` at least.
    deviation4_max: u64,
    /// The part of the timeout beyond the smoothed time: four deviations, `rto_min` at least.
    margin: u64,
    /// The position whose acknowledgement ends the round trip.
    round_end: u64,
    backoff: u32,
    min: MinFilter,
}

impl RttEstimator {
    /// Creates an estimator without samples.
    pub fn new(rto_min: Duration, rto_max: Duration) -> RttEstimator {
        let rto_min = rto_min.as_micros();
        RttEstimator {
            rto_min,
            rto_max,
            srtt8: 0,
            deviation4: 0,
            deviation4_max: rto_min,
            margin: rto_min,
            round_end: 0,
            backoff: 0,
            min: MinFilter::default(),
        }
    }

    /// Restores the values of a session record: `srtt` and `rttvar` as `TCP_INFO` has them
    /// (`tcpi_rtt`, `tcpi_rttvar`).
    pub fn restore(
        &mut self,
        now: Instant,
        srtt: Duration,
        rttvar: Duration,
        min: Option<Duration>,
    ) {
        self.srtt8 = scaled(srtt).max(1) * 8;
        self.deviation4 = scaled(rttvar) * 4;
        self.margin = self.deviation4.max(self.rto_min);
        self.deviation4_max = self.margin;
        if let Some(min) = min {
            self.min.update(now, min);
        }
    }

    /// Processes a sample: `rtt` is the round-trip time of the oldest newly acknowledged segment
    /// that was sent once, `latest` that of the segment sent last, which includes less of the
    /// receiver's delay. `una` is the first unacknowledged position after the acknowledgement and
    /// `nxt` the next position to send; they delimit round trips, because the margin falls at most
    /// once in each.
    pub fn sample(&mut self, now: Instant, rtt: Duration, latest: Duration, una: u64, nxt: u64) {
        self.min.update(now, latest.max(Duration::from_micros(1)));
        let rtt = scaled(rtt).max(1);
        if self.srtt8 == 0 {
            // RFC 6298, 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
            self.srtt8 = rtt * 8;
            self.deviation4 = rtt * 2;
            self.margin = self.deviation4.max(self.rto_min);
            self.deviation4_max = self.margin;
            self.round_end = nxt;
            return;
        }
        let old = self.srtt8 / 8;
        let (off, deviation) = (old.abs_diff(rtt), self.deviation4 / 4);
        // A much smaller sample is no reason to expect larger ones, so the deviation grows eight
        // times slower (Linux's `tcp_rtt_estimator`, after Eifel).
        let part = if rtt < old && off > deviation { 8 } else { 1 };
        self.deviation4 = if off > deviation {
            self.deviation4 + (off - deviation) / part
        } else {
            self.deviation4 - (deviation - off)
        };
        self.srtt8 = if rtt < old { self.srtt8 - off } else { self.srtt8 + off };
        self.widen(una, nxt);
    }

    /// Raises the margin at once, or lowers it by a quarter of the difference once in a round trip.
    fn widen(&mut self, una: u64, nxt: u64) {
        self.deviation4_max = self.deviation4_max.max(self.deviation4);
        self.margin = self.margin.max(self.deviation4_max);
        if una > self.round_end {
            self.margin -= (self.margin - self.deviation4_max) / 4;
            self.round_end = nxt;
            self.deviation4_max = self.rto_min;
        }
    }

    /// Returns the retransmission timeout, doubled for every timeout in a row (RFC 6298, 5.5).
    pub fn rto(&self) -> Duration {
        let base = self.base().as_micros();
        let shifted =
            if self.backoff >= base.leading_zeros() { u64::MAX } else { base << self.backoff };
        Duration::from_micros(shifted).min(self.rto_max)
    }

    /// Returns the timeout without doubling.
    pub fn base(&self) -> Duration {
        if self.srtt8 == 0 {
            return RTO_INITIAL.max(Duration::from_micros(self.rto_min)).min(self.rto_max);
        }
        Duration::from_micros(self.srtt8 / 8 + self.margin).min(self.rto_max)
    }

    /// Doubles the next timeout after a timeout happened.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(32);
    }

    /// Ends the doubling after new bytes were acknowledged.
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Returns the number of doublings.
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Returns the smoothed round-trip time.
    pub fn srtt(&self) -> Option<Duration> {
        (self.srtt8 > 0).then(|| Duration::from_micros(self.srtt8 / 8))
    }

    /// Returns the mean deviation (`tcpi_rttvar`).
    pub fn rttvar(&self) -> Duration {
        Duration::from_micros(self.deviation4 / 4)
    }

    /// Returns the least round-trip time of the last five minutes.
    pub fn min(&self) -> Option<Duration> {
        self.min.least()
    }
}

/// Returns microseconds, limited so that scaling by eight does not overflow.
fn scaled(span: Duration) -> u64 {
    span.as_micros().min(1 << 40)
}

/// The least value in a sliding window of time, by Kathleen Nichols' filter as in Linux's
/// `lib/minmax.c`: the filter keeps the best value, the best value after the first, and the best
/// value after the second.
#[derive(Clone, Debug, Default)]
struct MinFilter {
    best: Option<[Measured; 3]>,
}

/// A value and the time at which it was measured.
#[derive(Clone, Copy, Debug)]
struct Measured {
    at: Instant,
    value: Duration,
}

impl MinFilter {
    fn least(&self) -> Option<Duration> {
        self.best.map(|best| best[0].value)
    }

    fn update(&mut self, now: Instant, value: Duration) {
        let new = Measured { at: now, value };
        let Some(best) = &mut self.best else {
            self.best = Some([new; 3]);
            return;
        };
        if value <= best[0].value || now.since(best[2].at) > MIN_WINDOW {
            *best = [new; 3];
            return;
        }
        if value <= best[1].value {
            best[1] = new;
            best[2] = new;
        } else if value <= best[2].value {
            best[2] = new;
        }
        Self::age(best, new);
    }

    /// Drops the best value when it has left the window, and takes `new` as second or third value
    /// when a quarter or half of the window has passed without a better one
    /// (`minmax_subwin_update`).
    fn age(best: &mut [Measured; 3], new: Measured) {
        let age = new.at.since(best[0].at);
        if age > MIN_WINDOW {
            *best = [best[1], best[2], new];
            if new.at.since(best[0].at) > MIN_WINDOW {
                *best = [best[1], best[2], new];
            }
        } else if best[1].at == best[0].at && age > MIN_WINDOW.divided_by(4) {
            best[1] = new;
            best[2] = new;
        } else if best[2].at == best[1].at && age > MIN_WINDOW.divided_by(2) {
            best[2] = new;
        }
    }
}

#[cfg(test)]
#[path = "rtt_tests.rs"]
mod tests;
