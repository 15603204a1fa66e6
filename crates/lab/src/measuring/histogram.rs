//! A histogram of times: exact below 128 ns, within 1 % above.

use serde_json::{Value, json};

/// Steps within one power of two.
const STEPS: u64 = 64;

/// Counts of operations by time.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Makes a histogram without entries.
    pub fn new() -> Self {
        Self { counts: vec![0; (STEPS * 60) as usize] }
    }

    /// Adds `count` operations of `ns` each.
    pub fn note(&mut self, ns: u64, count: u64) {
        let last = self.counts.len() - 1;
        self.counts[place(ns).min(last)] += count;
    }

    /// Returns pairs of time in nanoseconds and count, without the empty ones.
    pub fn pairs(&self) -> Value {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(place, count)| json!([time(place), count])).collect()
    }
}

fn place(ns: u64) -> usize {
    if ns < 2 * STEPS {
        return ns as usize;
    }
    let power = u64::from(ns.ilog2()) - u64::from(STEPS.ilog2());
    (power * STEPS + (ns >> power)) as usize
}

/// Returns the middle of the times that belong to `place`.
fn time(place: usize) -> u64 {
    let place = place as u64;
    if place < 2 * STEPS {
        return place;
    }
    let power = place / STEPS - 1;
    ((place - power * STEPS) << power) + (1 << power) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_within_one_percent() {
        for ns in (0..100_000).chain((0..40).map(|power| 3_u64 << power)) {
            let found = time(place(ns));
            assert!(found.abs_diff(ns) * 100 <= ns.max(100), "{ns} became {found}");
        }
    }

    #[test]
    fn longer_times_are_never_before_shorter_ones() {
        assert!((1..100_000).all(|ns| place(ns) >= place(ns - 1)));
    }
}
