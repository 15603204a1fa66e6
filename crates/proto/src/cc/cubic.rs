//! CUBIC (RFC 9438): the window as a cubic function of the time since the last reduction, flat
//! where that reduction was.
//!
//! Not here: slow start ([`super::hystart`]) and recovery. Section numbers are the RFC's. Its
//! windows are in segments and its times in seconds; here they are bytes and microseconds, in
//! integers, so that a run is the same on every machine.

use super::window::{Acked, Signal, Window};
use crate::time::{Duration, Instant};

/// `beta_cubic` (4.6) in tenths: the window after a reduction.
const BETA: u64 = 7;
/// `C` (4.1, 5.1) in tenths of a segment per cubic second.
const C: u128 = 4;
/// Cubic microseconds in a cubic second, times ten for `C`.
const SCALE: u128 = 10 * 1_000_000_000_000_000_000;
/// The longest time (microseconds) for which the curve is computed: the cube is beyond any window
/// by then.
const TIME_MAX: u64 = 1 << 30;
/// The curve is computed anew when it is older than this.
const STALE: Duration = Duration::from_millis(1);

/// A stretch of congestion avoidance between two reductions.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// Microseconds until the curve is back at `w_max` (`K`, equation 2).
    k: u64,
    /// The height at which the curve is flat, in bytes: `w_max`, or the window if the window was
    /// larger when the epoch began.
    origin: u64,
    /// The window that Reno would have by now (`W_est`, 4.3).
    estimate: u64,
    /// The remainder of `estimate`'s growth, in bytes times 17 times the window.
    estimate_credit: u64,
    /// The remainder of the window's growth, in bytes times the window.
    credit: u64,
    /// For `t` at `computed`.
    curve: CurvePoints,
    computed: Instant,
}

/// Two points of the curve, in bytes.
#[derive(Clone, Copy, Debug)]
struct CurvePoints {
    /// `W_cubic(t)`.
    at_now: u64,
    /// `W_cubic(t + RTT)`.
    at_target: u64,
}

/// CUBIC's state between reductions.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// The window before the last reduction (`W_max`), bytes.
    w_max: u64,
    /// `W_max` for a session record: 0 instead of a guess.
    known: u64,
    /// The window when the last reduction was made (`cwnd_prior`, 4.3).
    prior: u64,
    epoch: Option<Epoch>,
}

impl Cubic {
    /// Creates the state of a connection that begins. A connection that comes with a threshold but
    /// without `w_max` has been reduced before: the window then was about the threshold divided by
    /// beta.
    pub fn new(window: &Window, w_max: u64) -> Cubic {
        let reduced = window.ssthresh != u64::MAX;
        let guess = if reduced { window.ssthresh.saturating_mul(10) / BETA } else { 0 };
        Cubic {
            w_max: if w_max > 0 { w_max } else { guess },
            known: w_max,
            prior: w_max.max(guess),
            epoch: None,
        }
    }

    /// Returns `W_max` in bytes; 0 before the first reduction, and after a timeout.
    pub fn remembered(&self) -> u64 {
        self.known
    }

    /// Ends the epoch with a reduction (4.6, 4.7) and returns the new threshold.
    pub fn on_congestion(&mut self, window: &Window, signal: Signal) -> u64 {
        self.w_max = if signal == Signal::Timeout {
            // 4.8: after a timeout the curve begins flat, at the window where slow start ends.
            0
        } else if window.cwnd < self.w_max {
            // 4.7, fast convergence: a flow that is still below its last maximum leaves bandwidth
            // to flows that have joined since.
            window.cwnd.saturating_mul(10 + BETA) / 20
        } else {
            window.cwnd
        };
        self.known = self.w_max;
        self.prior = window.cwnd;
        self.epoch = None;
        window.cwnd.saturating_mul(BETA) / 10
    }

    /// Shifts the epoch by `idle`: the curve does not move while nothing is sent.
    pub fn on_idle(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
            epoch.computed += idle;
        }
    }

    /// Grows the window in congestion avoidance for `bytes` acknowledged (4.2 to 4.5).
    pub fn avoid(&mut self, window: &mut Window, acked: &Acked, bytes: u64) {
        let (w_max, prior) = (self.w_max, self.prior);
        let epoch = self.epoch.get_or_insert_with(|| Epoch::begin(acked.now, window, w_max));
        epoch.compute(acked, window);
        epoch.estimate_reno(window, bytes, prior);
        let CurvePoints { at_now, at_target } = epoch.curve;
        if at_now < epoch.estimate {
            // 4.3: in the Reno-friendly region the window follows Reno's.
            window.set(window.cwnd.max(epoch.estimate));
            epoch.credit = 0;
            return;
        }
        // 4.4, 4.5: the window moves a fraction of the way to the target, which is at most half a
        // window above it.
        let target = at_target.clamp(window.cwnd, window.cwnd + window.cwnd / 2);
        epoch.credit += (target - window.cwnd) * bytes;
        let grown = epoch.credit / window.cwnd;
        epoch.credit -= grown * window.cwnd;
        window.set(window.cwnd + grown);
    }
}

impl Epoch {
    fn begin(now: Instant, window: &Window, w_max: u64) -> Epoch {
        // K = cubic root of (W_max - cwnd_epoch) / C, in microseconds.
        let below = u128::from(w_max.saturating_sub(window.cwnd));
        let k = cubic_root(below * SCALE / (C * u128::from(window.mss.max(1)))).min(TIME_MAX);
        Epoch {
            start: now,
            k,
            origin: w_max.max(window.cwnd),
            estimate: window.cwnd,
            estimate_credit: 0,
            credit: 0,
            curve: CurvePoints { at_now: 0, at_target: 0 },
            computed: Instant::ZERO,
        }
    }

    fn compute(&mut self, acked: &Acked, window: &Window) {
        if self.curve.at_target > 0 && acked.now.since(self.computed) < STALE {
            return;
        }
        self.computed = acked.now;
        let time = acked.now.since(self.start);
        let rtt = acked.srtt.unwrap_or(Duration::ZERO);
        self.curve = CurvePoints {
            at_now: self.at(time, window.mss),
            at_target: self.at(time + rtt, window.mss),
        };
    }

    /// Returns `W_cubic(t)` (equation 1) in bytes.
    fn at(&self, time: Duration, mss: u64) -> u64 {
        let time = time.as_micros().min(TIME_MAX);
        let distance = u128::from(time.abs_diff(self.k));
        let cube = distance * distance * distance;
        let offset = u64::try_from(cube * C * u128::from(mss) / SCALE).unwrap_or(u64::MAX);
        if time < self.k {
            self.origin.saturating_sub(offset)
        } else {
            self.origin.saturating_add(offset)
        }
    }

    /// Grows `W_est` by alpha segments for every acknowledged window (4.3). Alpha is 3 (1 - beta) /
    /// (1 + beta), which is 9/17 for beta 0.7, and 1 once `W_est` has reached `cwnd_prior`.
    fn estimate_reno(&mut self, window: &Window, bytes: u64, prior: u64) {
        let alpha = if self.estimate >= prior { 17 } else { 9 };
        let unit = 17 * window.cwnd;
        self.estimate_credit += alpha * window.mss * bytes;
        let grown = self.estimate_credit / unit;
        self.estimate_credit -= grown * unit;
        self.estimate = self.estimate.saturating_add(grown).min(window.max);
    }
}

/// Returns the largest number whose cube is not more than `value`.
fn cubic_root(value: u128) -> u64 {
    let mut root = 0u128;
    // `value` is below 2^126, so its root is below 2^42.
    for bit in (0..42).rev() {
        let trial = root | 1 << bit;
        if trial * trial * trial <= value {
            root = trial;
        }
    }
    u64::try_from(root).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
