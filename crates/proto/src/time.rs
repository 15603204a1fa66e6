//! Points in time and spans of time, in microseconds, as plain numbers.
//!
//! Nothing here reads a clock: the embedder of the engine passes the time in, which must never go
//! back. The origin is the embedder's choice. All arithmetic saturates, so that a timer in the far
//! future never wraps to the present.

use core::ops::{Add, AddAssign, Sub};

/// A point in time: microseconds since an origin that the embedder chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);

    /// Returns the point `us` microseconds after the origin.
    pub const fn from_micros(us: u64) -> Instant {
        Instant(us)
    }

    /// Returns the point `ms` milliseconds after the origin.
    pub const fn from_millis(ms: u64) -> Instant {
        Instant(ms.saturating_mul(1_000))
    }

    /// Returns the microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this point; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration(0);
    /// The longest span, longer than any timer.
    pub const MAX: Duration = Duration(u64::MAX);

    /// Returns a span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Duration {
        Duration(us)
    }

    /// Returns a span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Duration {
        Duration(ms.saturating_mul(1_000))
    }

    /// Returns a span of `seconds` seconds.
    pub const fn from_secs(seconds: u64) -> Duration {
        Duration(seconds.saturating_mul(1_000_000))
    }

    /// Returns the span in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the span in whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns true if the span is empty.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns `factor` times the span.
    pub const fn times(self, factor: u64) -> Duration {
        Duration(self.0.saturating_mul(factor))
    }

    /// Returns the span divided by `divisor`; a divisor of 0 counts as 1.
    pub const fn divided_by(self, divisor: u64) -> Duration {
        Duration(self.0 / if divisor == 0 { 1 } else { divisor })
    }

    /// Returns the span less `other`; zero if `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, span: Duration) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Duration;

    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let late = Instant::from_micros(u64::MAX - 1);
        assert_eq!(late + Duration::from_secs(1), Instant::from_micros(u64::MAX));
        assert_eq!(Instant::from_micros(5) - Duration::from_millis(1), Instant::ZERO);
        assert_eq!(Instant::from_micros(5).since(late), Duration::ZERO);
        assert_eq!(Duration::MAX.times(3), Duration::MAX);
        assert_eq!(Duration::from_millis(3).divided_by(0), Duration::from_millis(3));
    }
}
