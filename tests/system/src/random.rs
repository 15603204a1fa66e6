//! Random numbers that are the same for the same seed (splitmix64).
//!
//! Not for secrets.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number of a range.
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = (range.end() - range.start()).saturating_add(1);
        range.start() + self.next() % span
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Returns true in `percent` of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Returns one of the elements, if there are any.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).copied()
    }

    /// Returns a duration of a range of milliseconds.
    pub(crate) fn ms(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// Returns a probability up to `most`.
    pub(crate) fn probability(&mut self, most: f64) -> f64 {
        most * (self.next() % 1000) as f64 / 1000.0
    }
}
