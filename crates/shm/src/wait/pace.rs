//! Whether the next wait is worth spinning for, from how long the last ones took. Pure.
//!
//! Spinning is worth what it saves: the processor time of a sleep and a wake-up, the *cost*. In an
//! exchange both ends wait, so two sleeps are saved if both spin, and mostly one of the two waits
//! is the longer by far: a server computes its answer longer than its client thinks about it, or
//! the other way round. So a waiter spins for two costs, which pays if the other end's wait is
//! short, and spends at most twice what the two sleeps would have if it is as long. Where spins
//! fail, it sleeps at once for more and more waits, so that it spends hardly more than that.
//!
//! Two ends that both sleep meet each other asleep: either waits for the other's wake-up, which
//! takes longer than it costs, so that neither would ever spin again, though both would meet each
//! other at once if they did. That state is left in three steps. Now and then some waits in a row
//! are *long*, so that one end is met spinning. The other, asleep, then sleeps shortly, and tries a
//! spin after some short sleeps. Then both spin. And who has met quick answers for a while affords
//! a long wait, so that one late answer does not lead into that state. Not here: clocks, sleeping;
//! see `wait`.

/// How long to spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spin {
    /// Sleep at once.
    No,
    /// As long as two sleeps cost: see the file's head.
    Short,
    /// As long as somebody takes who has to be woken.
    Long,
}

/// A short wait, in costs.
pub(super) const SHORT: u64 = 2;
/// A long wait, in costs: a wake-up takes one or two, in a virtual machine at most three.
pub(super) const LONG: u64 = 4;
/// A sleep that took no more than so many costs may have been ended by somebody who was not asleep.
const SHORT_SLEEP: u64 = 4;
/// So many short sleeps in a row are worth a try.
const SHORT_SLEEPS: u32 = 4;
/// Long waits in a row: enough for the other end's try, and to meet it.
const LONGS: u32 = 7;
/// Waits that skip spinning once it has failed this often in a row, as a power of two.
const FAILURES_MAX: u32 = 7;
/// Quick answers that a long wait is afforded for.
const CREDIT: u32 = 8;

/// What a waiter has learnt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    failures: u32,
    skip: u32,
    /// Long waits that are left to try.
    longs: u32,
    short_sleeps: u32,
    /// This spin is one after short sleeps, among waits that are skipped.
    is_try: bool,
    credit: u32,
}

impl Default for Pace {
    /// Who knows nothing yet tries long waits: the other end, which begins as well, may be asleep.
    fn default() -> Self {
        Self { failures: 0, skip: 0, longs: LONGS, short_sleeps: 0, is_try: false, credit: 0 }
    }
}

impl Pace {
    /// Whether the next wait is expected to be long.
    #[inline(always)]
    pub(super) fn skips(&self) -> bool {
        self.skip > 0
    }

    /// How long to spin for what has not come at once.
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

    /// What was waited for came while spinning, within a short wait.
    #[inline(always)]
    pub(super) fn met(&mut self) {
        (self.failures, self.skip, self.short_sleeps, self.is_try) = (0, 0, 0, false);
        self.longs = self.longs.saturating_sub(1);
        self.credit = (self.credit + 1).min(CREDIT);
    }

    /// It came while spinning, later than that: sleeping would have been cheaper.
    pub(super) fn met_late(&mut self) {
        let longs = self.longs.saturating_sub(1);
        self.failed();
        if longs > 0 {
            (self.longs, self.skip) = (longs, 0);
        }
    }

    /// It did not come.
    pub(super) fn failed(&mut self) {
        // Else tries would put the long waits off for ever.
        if core::mem::take(&mut self.is_try) {
            return;
        }
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        self.skip = (1 << self.failures) - 2;
        (self.longs, self.short_sleeps) = (0, 0);
        self.credit /= 2;
    }

    /// The sleep that followed took `slept_ns`, where one costs `cost_ns`.
    pub(super) fn slept(&mut self, slept_ns: u64, cost_ns: u64) {
        let is_short = slept_ns <= SHORT_SLEEP * cost_ns;
        self.short_sleeps = if is_short { self.short_sleeps + 1 } else { 0 };
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
