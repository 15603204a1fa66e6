//! What sleeping costs, measured once per process. Not here: what is made of it; see `wait`.

use super::load::processors;
use crate::deadline::now_ns;
use core::ffi::c_long;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::sync::OnceLock;

/// Bounds of what is measured.
pub(super) const COST_NS: core::ops::RangeInclusive<u64> = 1_000..=30_000;
/// Sleeps of which the cheapest counts: what disturbs them makes them dearer.
const SLEEPS: u32 = 5;

/// Processor time (ns) that a sleep and the wake-up from it cost, of both threads; 0 on a single
/// processor, where nobody can wake a thread while it spins. Measured once per process, on the
/// thread that asks first, within about half a millisecond, of which the processor is used for a
/// fifth.
pub fn sleep_cost_ns() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(|| if processors() < 2 { 0 } else { measure() })
}

/// A sleep that a timer ends costs its thread what a sleep costs the sleeper and the wake-up the
/// waker: the timer's interrupt comes on the time of the sleeper's processor. No other thread is
/// needed.
fn measure() -> u64 {
    let word = AtomicU32::new(0);
    let sleep = |_| {
        let start = thread_time_ns()?;
        crate::futex::wait(&word, 0, Some(Duration::from_nanos(1)));
        thread_time_ns()?.checked_sub(start)
    };
    let cheapest = (0..SLEEPS).filter_map(sleep).min();
    cheapest.unwrap_or(0).clamp(*COST_NS.start(), *COST_NS.end())
}

/// Processor time of this thread, in nanoseconds.
fn thread_time_ns() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, nanoseconds): (c_long, c_long) = (time.tv_sec, time.tv_nsec);
    (answer == 0).then_some(seconds as u64 * 1_000_000_000 + nanoseconds as u64)
}

/// When a wait was given up, to be compared with the next one's beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GivenUp(Option<u64>);

impl GivenUp {
    pub(super) fn now() -> Self {
        Self(Some(now_ns()))
    }

    /// Nanoseconds since then; once.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.0.take().map(|then| now_ns().saturating_sub(then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_measured_and_within_its_bounds() {
        let cost = sleep_cost_ns();
        assert!(cost == 0 || COST_NS.contains(&cost), "{cost}");
        assert_eq!(cost, sleep_cost_ns(), "once");
    }

    #[test]
    fn a_wait_is_given_up_once() {
        let mut given_up = GivenUp::default();
        assert_eq!(given_up.take(), None);
        given_up = GivenUp::now();
        assert!(given_up.take().is_some());
        assert_eq!(given_up.take(), None);
    }
}
