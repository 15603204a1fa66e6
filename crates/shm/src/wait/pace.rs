//! The prediction if spinning pays in the next wait, from the lengths of the last ones. The code is
//! pure.
//!
//! A spin saves the processor time of a sleep and a wake-up, the *cost*, and must not spend more.
//! In an exchange both ends wait, so two sleeps are saved if both spin, and mostly one of the two
//! waits is much longer than the other: a server computes its answer for longer than its client
//! takes until the next request, or the reverse. So a waiter spins for two costs. That pays if the
//! other end's wait is short; if it is as long, the waiter spends at most twice the cost of the two
//! sleeps. After failed spins the waiter sleeps at once for more and more waits, so that it spends
//! hardly more than the sleeps.
//!
//! Two ends that both sleep keep each other asleep: each waits for the other's wake-up, which takes
//! longer than it costs, so neither would ever spin again, although both would get quick answers if
//! both did. The ends leave that state in three steps. Now and then one end makes some *long* waits
//! in a row, so that the other's message finds it spinning. The other end then has short sleeps,
//! and tries a spin after some of them. Then both spin. In addition, a waiter that has had quick
//! answers for a while may make a long wait, so that one late answer does not lead into that state.
//! Not here: clocks, sleeping (`wait`).

/// The length of a spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spin {
    /// Sleep at once.
    No,
    /// Spin for the cost of two sleeps; see the file's head.
    Short,
    /// Spin for the time that a sleeping peer needs to wake up and answer.
    Long,
}

/// The length of a short spin, in costs.
pub(super) const SHORT: u64 = 2;
/// The length of a long spin, in costs: a wake-up takes one or two, in a virtual machine at most
/// three.
pub(super) const LONG: u64 = 4;
/// The longest short sleep, in costs: the peer that ended it may have been spinning.
const SHORT_SLEEP: u64 = 4;
/// The number of short sleeps in a row after which a spin is tried.
const SHORT_SLEEPS: u32 = 4;
/// The number of long spins in a row: enough for the other end to try a spin and to be met by one.
const LONGS: u32 = 7;
/// The largest number of failures in a row that counts; the waits that skip spinning are a power of
/// two of it.
const FAILURES_MAX: u32 = 7;
/// The number of quick answers after which a long spin is allowed.
const CREDIT: u32 = 8;

/// The state that a waiter has learnt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    failures: u32,
    skip: u32,
    /// Long spins left to try.
    longs: u32,
    short_sleeps: u32,
    /// The current spin is a try after short sleeps, among waits that skip spinning.
    is_try: bool,
    credit: u32,
}

impl Default for Pace {
    /// Begins with long spins, because the other end begins as well and may be asleep.
    fn default() -> Self {
        Self { failures: 0, skip: 0, longs: LONGS, short_sleeps: 0, is_try: false, credit: 0 }
    }
}

impl Pace {
    /// Returns true if the next wait is expected to be long.
    #[inline(always)]
    pub(super) fn skips(&self) -> bool {
        self.skip > 0
    }

    /// Returns the length of the spin for an event that has not come at once.
    pub(super) fn next(&mut self) -> Spin {
        if self.skip > 0 {
            self.skip -= 1;
            if self.skip == 0 && self.failures == FAILURES_MAX {
                self.longs = LONGS;
            }
            if self.short_sleeps < SHORT_SLEEPS {
                return Spin::No;
            }
            self.short_sleeps = 0;
            self.is_try = true;
            return Spin::Short;
        }
        if self.longs > 0 || self.credit >= CREDIT { Spin::Long } else { Spin::Short }
    }

    /// Notes that the event came during a short spin.
    #[inline(always)]
    pub(super) fn met(&mut self) {
        (self.failures, self.skip, self.short_sleeps, self.is_try) = (0, 0, 0, false);
        self.longs = self.longs.saturating_sub(1);
        self.credit = (self.credit + 1).min(CREDIT);
    }

    /// Notes that the event came during a spin, but so late that sleeping would have been cheaper.
    pub(super) fn met_late(&mut self) {
        let longs = self.longs.saturating_sub(1);
        self.failed();
        if longs > 0 {
            (self.longs, self.skip) = (longs, 0);
        }
    }

    /// Notes that the event did not come during the spin.
    pub(super) fn failed(&mut self) {
        // A failed try does not count, because tries would put the long spins off for ever.
        if core::mem::take(&mut self.is_try) {
            return;
        }
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        self.skip = (1 << self.failures) - 2;
        (self.longs, self.short_sleeps) = (0, 0);
        self.credit /= 2;
    }

    /// Notes that the sleep after the spin took `slept_ns`, if a sleep costs `cost_ns`.
    pub(super) fn slept(&mut self, slept_ns: u64, cost_ns: u64) {
        let is_short = slept_ns <= SHORT_SLEEP * cost_ns;
        self.short_sleeps = if is_short { self.short_sleeps + 1 } else { 0 };
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
