//! Detection of senders that do not fill the congestion window. Such a window must not grow, and
//! after a while it shrinks towards the part that is used (RFC 7661's aim, with the rules of
//! Linux's `tcp_cwnd_validate` and `tcp_cwnd_restart`).

use super::window::Window;
use crate::time::{Duration, Instant};

/// The use of the window over the last round trip.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    limited: bool,
    /// Most bytes outstanding in this round trip.
    outstanding_max: u64,
    /// The position whose acknowledgement ends the round trip.
    round_end: u64,
    /// Most bytes outstanding since `full_at`.
    used: u64,
    /// When the window was last full.
    full_at: Instant,
}

/// The state in which the output loop ended.
#[derive(Clone, Copy, Debug)]
pub struct OutputDone {
    /// The first byte that is outstanding.
    pub una: u64,
    /// The byte behind the last that is outstanding.
    pub nxt: u64,
    /// The loop ended because the window was used up.
    pub full: bool,
    /// The retransmission timeout.
    pub rto: Duration,
    /// `Some(floor)` if an unused window may shrink now, but not below `floor`.
    pub shrink: Option<u64>,
}

impl Usage {
    /// Creates the state of a connection that has sent nothing yet.
    pub fn new(now: Instant) -> Usage {
        Usage { full_at: now, ..Usage::default() }
    }

    /// Returns true if the window may grow: it was full in the last round trip, or in slow start
    /// more than half full (Linux's `tcp_is_cwnd_limited`).
    pub fn is_limited(&self, window: &Window) -> bool {
        self.limited || (window.in_slow_start() && window.cwnd < 2 * self.outstanding_max)
    }

    /// Tells that the output loop ended.
    pub fn on_output_done(&mut self, window: &mut Window, now: Instant, done: &OutputDone) {
        let OutputDone { una, nxt, full, rto, shrink } = *done;
        let outstanding = nxt - una;
        let more = !self.limited && outstanding > self.outstanding_max;
        if una >= self.round_end || full || more {
            self.limited = full;
            self.outstanding_max = outstanding;
            self.round_end = nxt;
        }
        if self.is_limited(window) {
            self.used = 0;
            self.full_at = now;
            return;
        }
        self.used = self.used.max(outstanding);
        if let Some(floor) = shrink
            && now.since(self.full_at) >= rto
        {
            let used = self.used.max(floor);
            if used < window.cwnd {
                remember(window);
                window.set((window.cwnd + used) / 2);
            }
            self.used = 0;
            self.full_at = now;
        }
    }

    /// Halves the window for every timeout in `idle`, the time without sending, but not below
    /// `floor`. RFC 5681, 4.1 would set the window to `floor` at once; this is Linux's
    /// `tcp_cwnd_restart`.
    pub fn on_restart(
        &mut self,
        window: &mut Window,
        now: Instant,
        idle: Duration,
        rto: Duration,
        floor: u64,
    ) {
        remember(window);
        let floor = floor.min(window.cwnd);
        let mut left = idle.saturating_sub(rto);
        let mut cwnd = window.cwnd;
        while !left.is_zero() && cwnd > floor {
            cwnd /= 2;
            left = left.saturating_sub(rto);
        }
        window.set(cwnd.max(floor));
        self.full_at = now;
        self.used = 0;
    }
}

/// Raises the threshold to three quarters of the window, so that slow start leads back there
/// (Linux's `tcp_current_ssthresh`).
fn remember(window: &mut Window) {
    window.ssthresh = window.ssthresh.max(window.cwnd / 4 * 3);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_millis(200);

    fn window(cwnd: u64, ssthresh: u64) -> Window {
        Window { cwnd, ssthresh, mss: 1_000, max: u64::MAX }
    }

    fn done(outstanding: core::ops::Range<u64>, full: bool) -> OutputDone {
        let (una, nxt) = (outstanding.start, outstanding.end);
        OutputDone { una, nxt, full, rto: RTO, shrink: None }
    }

    #[test]
    fn a_window_that_is_not_full_does_not_grow() {
        let mut usage = Usage::new(Instant::ZERO);
        let mut window = window(10_000, 5_000);
        usage.on_output_done(&mut window, Instant::ZERO, &done(0..3_000, false));
        assert!(!usage.is_limited(&window));
        usage.on_output_done(&mut window, Instant::ZERO, &done(0..10_000, true));
        assert!(usage.is_limited(&window));
        // A window that was full once in a round trip counts as full until the round trip ends.
        usage.on_output_done(&mut window, Instant::ZERO, &done(9_000..11_000, false));
        assert!(usage.is_limited(&window));
        usage.on_output_done(&mut window, Instant::ZERO, &done(11_000..12_000, false));
        assert!(!usage.is_limited(&window));
    }

    #[test]
    fn in_slow_start_half_a_window_is_enough() {
        let mut usage = Usage::new(Instant::ZERO);
        let mut window = window(10_000, u64::MAX);
        usage.on_output_done(&mut window, Instant::ZERO, &done(0..5_001, false));
        assert!(usage.is_limited(&window));
    }

    #[test]
    fn an_unused_window_shrinks_halfway_to_what_is_used() {
        let mut usage = Usage::new(Instant::ZERO);
        let mut window = window(100_000, 50_000);
        let later = Instant::from_millis(200);
        let done = OutputDone { shrink: Some(10_000), ..done(0..20_000, false) };
        usage.on_output_done(&mut window, later, &done);
        assert_eq!((window.cwnd, window.ssthresh), (60_000, 75_000));
    }

    #[test]
    fn a_pause_halves_the_window_for_every_timeout() {
        let mut usage = Usage::new(Instant::ZERO);
        let mut window = window(80_000, 50_000);
        let idle = Duration::from_millis(500);
        usage.on_restart(&mut window, Instant::from_millis(500), idle, RTO, 10_000);
        assert_eq!((window.cwnd, window.ssthresh), (20_000, 60_000));
        let idle = Duration::from_secs(10);
        usage.on_restart(&mut window, Instant::from_millis(500), idle, RTO, 10_000);
        assert_eq!(window.cwnd, 10_000);
    }
}
