//! Pacing: spreads a window of segments over the round-trip time, so that queues on the path do not
//! see bursts.
//!
//! Not here: the window. The rate is Linux's: twice the window in a round trip during slow start,
//! 1.2 times the window later (`tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`).

use crate::time::{Duration, Instant};

/// The largest burst is the bytes that the rate gives in this time, or two segments if these are
/// more.
const BURST: Duration = Duration::from_millis(1);
/// Segments that may be sent at once at any rate.
const BURST_SEGMENTS: u64 = 2;

/// The pacing rate and the time of the next burst.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    on: bool,
    rate_max: u64,
    /// Bytes a second; 0 while the rate is unknown, when nothing is held back.
    rate: u64,
    /// The time of the next burst, in nanoseconds since the origin of [`Instant`].
    release_ns: u64,
}

impl Pacing {
    /// Creates the state. Pacing is on if `on` is true or `rate_max` (bytes a second) is given.
    pub fn new(on: bool, rate_max: Option<u64>) -> Pacing {
        let on = on || rate_max.is_some();
        Pacing { on, rate_max: rate_max.unwrap_or(u64::MAX).max(1), rate: 0, release_ns: 0 }
    }

    /// Computes the rate anew from the window and the smoothed round-trip time.
    pub fn update(&mut self, cwnd: u64, ssthresh: u64, srtt: Option<Duration>) {
        let Some(srtt) = srtt.filter(|srtt| self.on && !srtt.is_zero()) else {
            self.rate = if self.rate_max == u64::MAX { 0 } else { self.rate_max };
            return;
        };
        // Linux's `tcp_update_pacing_rate`: the slow start ratio applies below half the threshold.
        let percent = if cwnd < ssthresh / 2 { 200 } else { 120 };
        let rate = cwnd.saturating_mul(percent).saturating_mul(10_000) / srtt.as_micros();
        self.rate = rate.clamp(1, self.rate_max);
    }

    /// Returns the rate in bytes a second, if pacing is on and the rate is known.
    pub fn rate(&self) -> Option<u64> {
        (self.on && self.rate > 0).then_some(self.rate)
    }

    /// Returns the bytes that pacing lets go now; `u64::MAX` without pacing.
    pub fn allowance(&self, now: Instant, mss: u64) -> u64 {
        let Some(rate) = self.rate() else { return u64::MAX };
        if now.as_micros().saturating_mul(1_000) < self.release_ns {
            return 0;
        }
        let burst = u128::from(rate) * u128::from(BURST.as_micros()) / 1_000_000;
        u64::try_from(burst).unwrap_or(u64::MAX).max(BURST_SEGMENTS * mss)
    }

    /// Returns the time of the next burst, if that is later than `now`.
    pub fn release(&self, now: Instant) -> Option<Instant> {
        let release = Instant::from_micros(self.release_ns.div_ceil(1_000));
        (self.rate().is_some() && release > now).then_some(release)
    }

    /// Tells that `bytes` were sent; the next burst waits until the rate allows them.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.rate() else { return };
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let from = self.release_ns.max(now.as_micros().saturating_mul(1_000));
        self.release_ns = from.saturating_add(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_twice_the_window_in_slow_start_and_a_fifth_more_later() {
        let mut pacing = Pacing::new(true, None);
        pacing.update(100_000, u64::MAX, Some(Duration::from_millis(100)));
        assert_eq!(pacing.rate(), Some(2_000_000));
        pacing.update(100_000, 100_000, Some(Duration::from_millis(100)));
        assert_eq!(pacing.rate(), Some(1_200_000));
    }

    #[test]
    fn a_burst_is_paid_for_before_the_next() {
        let mut pacing = Pacing::new(false, Some(1_000_000));
        pacing.update(100_000, 100_000, Some(Duration::from_millis(10)));
        let now = Instant::from_millis(5);
        assert_eq!(pacing.allowance(now, 1_000), 2_000);
        pacing.on_sent(now, 2_000);
        assert_eq!(pacing.allowance(now, 1_000), 0);
        assert_eq!(pacing.release(now), Some(Instant::from_millis(7)));
        assert_eq!(pacing.allowance(Instant::from_millis(7), 1_000), 2_000);
    }

    #[test]
    fn over_time_no_more_goes_than_the_rate() {
        let mut pacing = Pacing::new(false, Some(777_777));
        pacing.update(1 << 20, 1 << 20, Some(Duration::from_millis(20)));
        let (mut sent, mut now) = (0, Instant::from_millis(1));
        while now < Instant::from_millis(1_001) {
            let bytes = pacing.allowance(now, 1_448).min(1_448);
            pacing.on_sent(now, bytes);
            sent += bytes;
            now = pacing.release(now).unwrap_or(now);
        }
        assert!((777_777..777_777 + 2 * 1_448).contains(&sent), "{sent} bytes in a second");
    }

    #[test]
    fn without_pacing_nothing_is_held_back() {
        let mut pacing = Pacing::new(false, None);
        pacing.update(100_000, u64::MAX, Some(Duration::from_millis(100)));
        pacing.on_sent(Instant::ZERO, 1 << 30);
        assert_eq!(pacing.allowance(Instant::ZERO, 1_448), u64::MAX);
        assert_eq!(pacing.release(Instant::ZERO), None);
    }
}
