//! Absolute points in time that end a wait.
//!
//! A deadline is nanoseconds of `CLOCK_MONOTONIC`, the clock of futex and poll. Every wait of the
//! project takes a deadline, not a relative time, so a resumed wait does not start anew.

use core::time::Duration;
use rustix::time::{ClockId, clock_gettime};

/// The latest end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    ns: u64,
}

impl Deadline {
    /// No limit.
    pub const NEVER: Self = Self { ns: u64::MAX };
    /// A deadline that has passed: the wait looks once and does not sleep.
    pub const NOW: Self = Self { ns: 0 };

    /// Returns the deadline `duration` from now; [`Deadline::NEVER`] if that exceeds the clock's
    /// range.
    pub fn after(duration: Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self { ns: now_ns().saturating_add(ns) }
    }

    /// Returns the deadline of a socket's time limit: `limit_ns` from now, 0 for no limit
    /// (`SO_RCVTIMEO`, socket(7)).
    pub fn from_limit(limit_ns: u64) -> Self {
        if limit_ns == 0 { Self::NEVER } else { Self::after(Duration::from_nanos(limit_ns)) }
    }

    /// Returns the deadline at `ns` nanoseconds of `CLOCK_MONOTONIC`.
    pub const fn at_ns(ns: u64) -> Self {
        Self { ns }
    }

    /// Returns true if the deadline has passed.
    pub fn is_over(self) -> bool {
        self.ns != u64::MAX && now_ns() >= self.ns
    }

    /// Returns the time left, `None` for [`Deadline::NEVER`].
    pub fn left(self) -> Option<Duration> {
        (self.ns != u64::MAX).then(|| Duration::from_nanos(self.ns.saturating_sub(now_ns())))
    }

    /// Returns the deadline as time since the clock's zero, `None` for [`Deadline::NEVER`].
    pub fn since_zero(self) -> Option<Duration> {
        (self.ns != u64::MAX).then(|| Duration::from_nanos(self.ns))
    }
}

/// Returns the time that has passed since `begun_ns`, by [`now_ns`]; zero if that is to come.
pub fn since(begun_ns: u64) -> Duration {
    Duration::from_nanos(now_ns().saturating_sub(begun_ns))
}

/// Returns the current time in nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
