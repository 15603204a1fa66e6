//! Absolute points in time that end a wait.
//!
//! A deadline is nanoseconds of `CLOCK_MONOTONIC`, the clock of futex and poll. Every wait of the
//! project takes one; none is relative, so a wait that is resumed does not start anew.

use core::time::Duration;
use rustix::time::{ClockId, clock_gettime};

/// When a wait ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    ns: u64,
}

impl Deadline {
    /// No limit.
    pub const NEVER: Self = Self { ns: u64::MAX };
    /// Already over: look once, do not wait.
    pub const NOW: Self = Self { ns: 0 };

    /// `duration` from now; [`Deadline::NEVER`] where that is beyond what the clock can say.
    pub fn after(duration: Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self { ns: now_ns().saturating_add(ns) }
    }

    /// As a socket's time limit says: `limit_ns` from now, 0 for none (`SO_RCVTIMEO`, socket(7)).
    pub fn from_limit(limit_ns: u64) -> Self {
        if limit_ns == 0 { Self::NEVER } else { Self::after(Duration::from_nanos(limit_ns)) }
    }

    /// At `ns` nanoseconds of `CLOCK_MONOTONIC`.
    pub const fn at_ns(ns: u64) -> Self {
        Self { ns }
    }

    /// Whether it has passed.
    pub fn is_over(self) -> bool {
        self.ns != u64::MAX && now_ns() >= self.ns
    }

    /// What is left, `None` for [`Deadline::NEVER`].
    pub fn left(self) -> Option<Duration> {
        (self.ns != u64::MAX).then(|| Duration::from_nanos(self.ns.saturating_sub(now_ns())))
    }

    /// As time since the clock's zero, `None` for [`Deadline::NEVER`].
    pub fn since_zero(self) -> Option<Duration> {
        (self.ns != u64::MAX).then(|| Duration::from_nanos(self.ns))
    }
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
