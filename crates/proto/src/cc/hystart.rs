//! HyStart++ (RFC 9406): leaves the first slow start when round-trip times rise, before anything is
//! lost.
//!
//! Not here: later slow starts, which end at the threshold that the first congestion gave (RFC
//! 9406, 4.3 says to use it for the first only). As in Linux the growth per acknowledgement is not
//! limited (L is infinite), since receivers that merge segments acknowledge many at once.

use super::window::{Acked, Window};
use crate::time::Duration;

/// Least rise of the round-trip time that counts (`MIN_RTT_THRESH`).
const THRESHOLD_MIN: Duration = Duration::from_millis(4);
/// A rise that always counts (`MAX_RTT_THRESH`).
const THRESHOLD_MAX: Duration = Duration::from_millis(16);
/// Between the two bounds the rise that counts is the round-trip time divided by this number
/// (`MIN_RTT_DIVISOR`).
const DIVISOR: u64 = 8;
/// Samples that a round needs (`N_RTT_SAMPLE`).
const SAMPLES: u32 = 8;
/// The number by which conservative slow start divides the growth (`CSS_GROWTH_DIVISOR`).
const CONSERVATIVE_SHARE: u64 = 4;
/// Rounds of conservative slow start, including the round in which it began (`CSS_ROUNDS`).
const CONSERVATIVE_ROUNDS: u32 = 5;

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Ordinary slow start.
    Standard,
    /// Conservative slow start: slow start resumes if the round-trip time falls below `baseline`.
    Conservative { baseline: Duration, rounds: u32 },
    /// The first slow start is over.
    Done,
}

/// The detector of the end of the first slow start.
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    phase: Phase,
    /// The position whose acknowledgement ends the round; `None` before the first round.
    round_end: Option<u64>,
    last_min: Duration,
    min: Duration,
    samples: u32,
}

impl HyStart {
    /// Creates the detector. `first` is true if the connection is in its first slow start;
    /// otherwise the detector does nothing.
    pub fn new(first: bool) -> HyStart {
        HyStart {
            phase: if first { Phase::Standard } else { Phase::Done },
            round_end: None,
            last_min: Duration::MAX,
            min: Duration::MAX,
            samples: 0,
        }
    }

    /// Ends the first slow start because of congestion.
    pub fn stop(&mut self) {
        self.phase = Phase::Done;
    }

    /// Returns true in conservative slow start.
    pub fn is_conservative(&self) -> bool {
        matches!(self.phase, Phase::Conservative { .. })
    }

    /// Processes an acknowledgement, sets the threshold to the window if slow start is to end, and
    /// returns the number by which the caller divides the growth.
    pub fn on_ack(&mut self, window: &mut Window, acked: &Acked) -> u64 {
        if matches!(self.phase, Phase::Done) {
            return 1;
        }
        if !window.in_slow_start() {
            self.phase = Phase::Done;
            return 1;
        }
        let round_over = self.round_end.is_none_or(|end| acked.una >= end);
        if let Some(rtt) = acked.rtt {
            self.min = self.min.min(rtt);
            self.samples += 1;
        }
        self.watch();
        if round_over {
            self.next_round(window, acked.nxt);
        }
        if self.is_conservative() { CONSERVATIVE_SHARE } else { 1 }
    }

    /// Compares this round's least round-trip time with the last round's (4.2).
    fn watch(&mut self) {
        if self.samples < SAMPLES {
            return;
        }
        match self.phase {
            Phase::Standard if self.last_min != Duration::MAX => {
                let threshold =
                    self.last_min.divided_by(DIVISOR).clamp(THRESHOLD_MIN, THRESHOLD_MAX);
                if self.min >= self.last_min + threshold {
                    self.phase = Phase::Conservative { baseline: self.min, rounds: 0 };
                }
            }
            // The rise did not last: slow start goes on at full speed.
            Phase::Conservative { baseline, .. } if self.min < baseline => {
                self.phase = Phase::Standard;
            }
            _ => {}
        }
    }

    fn next_round(&mut self, window: &mut Window, nxt: u64) {
        if let Phase::Conservative { rounds, .. } = &mut self.phase {
            *rounds += 1;
            if *rounds >= CONSERVATIVE_ROUNDS {
                window.ssthresh = window.cwnd;
                self.phase = Phase::Done;
            }
        }
        self.round_end = Some(nxt);
        self.last_min = self.min;
        self.min = Duration::MAX;
        self.samples = 0;
    }
}

#[cfg(test)]
#[path = "hystart_tests.rs"]
mod tests;
