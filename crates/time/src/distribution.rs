//! Times of one row: count, sum, and a histogram for quantiles.
//!
//! Buckets are logarithmic, sixteen to a power of two, so that a quantile is off by at most one
//! part in sixteen. Not here: rows (`row`).

use std::collections::BTreeMap;

/// Bits of a value that a bucket keeps below the highest.
const KEPT: u32 = 4;

/// Times (ns).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    count: u64,
    sum_ns: u64,
    buckets: BTreeMap<u32, u64>,
}

impl Distribution {
    /// Adds a time.
    pub fn add(&mut self, ns: u64) {
        self.add_many(ns, 1);
    }

    /// Adds a time that was seen so often.
    pub fn add_many(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.count += count;
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(count));
        *self.buckets.entry(bucket(ns)).or_default() += count;
    }

    /// Adds all times of another.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }

    /// How many times were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Their mean; none without any.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The time that `part` of them (0 to 1) do not exceed; none without any.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen >= wanted {
                return Some(middle(*bucket));
            }
        }
        None
    }
}

/// The bucket of a value: its highest bits.
fn bucket(ns: u64) -> u32 {
    let power = ns.max(1).ilog2();
    if power <= KEPT {
        return ns as u32;
    }
    let shift = power - KEPT;
    // The shifted value is between 2^KEPT and 2^(KEPT+1).
    (shift << KEPT) + (ns >> shift) as u32
}

/// The value in the middle of a bucket.
fn middle(bucket: u32) -> u64 {
    if bucket < 2 << KEPT {
        return bucket.into();
    }
    let shift = (bucket >> KEPT) - 1;
    let top = u64::from(bucket - (shift << KEPT));
    (top << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_s_middle_is_near_its_values(ns in 0_u64..1 << 50) {
            let middle = middle(bucket(ns));
            prop_assert!(middle.abs_diff(ns) * 16 <= ns.max(1), "{ns}: {middle}");
        }

        #[test]
        fn buckets_are_in_order(a in 0_u64..1 << 50, b in 0_u64..1 << 50) {
            prop_assert_eq!(bucket(a) <= bucket(b), a <= b || bucket(a) == bucket(b));
        }
    }

    #[test]
    fn quantiles_and_mean() {
        let mut times = Distribution::default();
        assert_eq!((times.mean_ns(), times.quantile_ns(0.5)), (None, None));
        (1..=9).for_each(|ns| times.add(ns));
        times.add(1000);
        assert_eq!((times.count(), times.sum_ns()), (10, 1045));
        assert_eq!(times.quantile_ns(0.5), Some(5));
        assert_eq!(times.quantile_ns(0.9), Some(9));
        assert!(times.quantile_ns(1.0).unwrap().abs_diff(1000) < 63);
    }
}
