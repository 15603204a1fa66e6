//! Round-trip times and the retransmission timeout that follows from them (RFC 6298), with Linux's bounds.
//!
//! Not here: which segment's time counts (Karn's rule is the scoreboard's), and the timer itself ([`crate::recovery`]).

use crate::time::{Duration, Instant};

/// Length of the window over which the least round-trip time is kept (Linux: `tcp_min_rtt_wlen`).
const MIN_WINDOW: Duration = Duration::from_secs(300);
/// The timeout before anything was measured (RFC 6298, 2.1).
const RTO_INITIAL: Duration = Duration::from_secs(1);

/// Smoothed round-trip time, its deviation, the timeout, and the least round-trip time of the last minutes.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    rto_min: Duration,
    rto_max: Duration,
    /// Nothing measured: `None`.
    srtt: Option<Duration>,
    /// Mean deviation, smoothed with every sample.
    deviation: Duration,
    /// The largest mean deviation of this round trip.
    deviation_max: Duration,
    /// What the timeout adds to `srtt`: four mean deviations, never under `rto_min`.
    margin: Duration,
    /// A round trip ends when this position is acknowledged.
    round_end: u64,
    backoff: u32,
    min: MinFilter,
}

impl RttEstimator {
    /// Nothing measured yet.
    pub fn new(rto_min: Duration, rto_max: Duration) -> RttEstimator {
        RttEstimator {
            rto_min,
            rto_max,
            srtt: None,
            deviation: Duration::ZERO,
            deviation_max: Duration::ZERO,
            margin: rto_min,
            round_end: 0,
            backoff: 0,
            min: MinFilter::default(),
        }
    }

    /// What a record tells: `srtt` and `rttvar` as `TCP_INFO` has them (`tcpi_rtt`, `tcpi_rttvar`).
    pub fn restore(
        &mut self,
        now: Instant,
        srtt: Duration,
        rttvar: Duration,
        min: Option<Duration>,
    ) {
        self.srtt = Some(srtt);
        self.deviation = rttvar;
        self.deviation_max = rttvar.times(4).max(self.rto_min).divided_by(4);
        self.margin = rttvar.times(4).max(self.rto_min);
        if let Some(min) = min {
            self.min.update(now, min);
        }
    }

    /// Takes in the round-trip time of a segment that was sent once. `una` is the first unacknowledged position after the
    /// acknowledgement that told it, `nxt` the next one to send: the margin falls at most once in a round trip.
    pub fn sample(&mut self, now: Instant, rtt: Duration, una: u64, nxt: u64) {
        let rtt = rtt.max(Duration::from_micros(1));
        self.min.update(now, rtt);
        let Some(srtt) = self.srtt else {
            // RFC 6298, 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
            self.srtt = Some(rtt);
            self.deviation = rtt.divided_by(2);
            self.margin = rtt.times(2).max(self.rto_min);
            self.deviation_max = self.margin.divided_by(4);
            self.round_end = nxt;
            return;
        };
        let (old, new) = (srtt.as_micros(), rtt.as_micros());
        let off = old.abs_diff(new);
        let deviation = self.deviation.as_micros();
        // A smaller round-trip time is no reason to expect larger ones: Linux then lets the deviation grow eight times slower, so
        // that a path that gets faster does not wait longer (Eifel's "rule of the falling sample").
        let deviation = if new < old && off > deviation {
            deviation + (off - deviation) / 32
        } else {
            (deviation * 3 + off) / 4
        };
        self.deviation = Duration::from_micros(deviation);
        self.srtt = Some(Duration::from_micros((old * 7 + new) / 8));
        self.widen(una, nxt);
    }

    /// The margin rises at once and falls by a quarter of the difference once in a round trip.
    fn widen(&mut self, una: u64, nxt: u64) {
        if self.deviation > self.deviation_max {
            self.deviation_max = self.deviation;
            self.margin = self.margin.max(self.deviation_max.times(4));
        }
        if una >= self.round_end {
            let seen = self.deviation_max.times(4);
            if seen < self.margin {
                self.margin =
                    self.margin.saturating_sub(self.margin.saturating_sub(seen).divided_by(4));
            }
            self.margin = self.margin.max(self.rto_min);
            self.round_end = nxt;
            self.deviation_max = self.rto_min.divided_by(4);
        }
    }

    /// The retransmission timeout, doubled for every timeout in a row (RFC 6298, 5.5).
    pub fn rto(&self) -> Duration {
        let base = self.base().as_micros();
        let shifted =
            if self.backoff >= base.leading_zeros() { u64::MAX } else { base << self.backoff };
        Duration::from_micros(shifted).min(self.rto_max)
    }

    /// The timeout without doubling.
    pub fn base(&self) -> Duration {
        match self.srtt {
            Some(srtt) => (srtt + self.margin).max(self.rto_min).min(self.rto_max),
            None => RTO_INITIAL.max(self.rto_min).min(self.rto_max),
        }
    }

    /// A timeout happened: the next one waits twice as long.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(32);
    }

    /// Something new was acknowledged: the next timeout is not doubled.
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// How often the timeout was doubled.
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// The smoothed round-trip time.
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// The mean deviation (`tcpi_rttvar`).
    pub fn rttvar(&self) -> Duration {
        self.deviation
    }

    /// The least round-trip time of the last five minutes.
    pub fn min(&self) -> Option<Duration> {
        self.min.least()
    }
}

/// The least value of a sliding window of time, by keeping the best, the second best after it, and the third best after that (Kathleen
/// Nichols' filter, as in Linux's `lib/minmax.c`).
#[derive(Clone, Debug, Default)]
struct MinFilter {
    best: Option<[(Instant, Duration); 3]>,
}

impl MinFilter {
    fn least(&self) -> Option<Duration> {
        self.best.map(|best| best[0].1)
    }

    fn update(&mut self, now: Instant, value: Duration) {
        let new = (now, value);
        let Some(best) = &mut self.best else {
            self.best = Some([new; 3]);
            return;
        };
        if value <= best[0].1 || now.since(best[2].0) > MIN_WINDOW {
            *best = [new; 3];
            return;
        }
        if value <= best[1].1 {
            best[1] = new;
            best[2] = new;
        } else if value <= best[2].1 {
            best[2] = new;
        }
        Self::age(best, new);
    }

    /// Lets the best go when it left the window, and looks for younger second and third ones in its quarters.
    fn age(best: &mut [(Instant, Duration); 3], new: (Instant, Duration)) {
        let age = new.0.since(best[0].0);
        if age > MIN_WINDOW {
            *best = [best[1], best[2], new];
            if new.0.since(best[0].0) > MIN_WINDOW {
                *best = [best[1], best[2], new];
            }
        } else if best[1].0 == best[0].0 && age > MIN_WINDOW.divided_by(4) {
            best[1] = new;
            best[2] = new;
        } else if best[2].0 == best[1].0 && age > MIN_WINDOW.divided_by(2) {
            best[2] = new;
        }
    }
}

#[cfg(test)]
#[path = "rtt_tests.rs"]
mod tests;
