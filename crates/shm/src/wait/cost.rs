//! The processor time of a sleep, measured once per process. Not here: its use (`wait`).

use super::load::processors;
use crate::deadline::now_ns;
use core::ffi::c_long;
use core::num::NonZeroUsize;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use once_cell::race::OnceNonZeroUsize;

/// The bounds of the measured cost.
pub(super) const COST_NS: core::ops::RangeInclusive<u64> = 1_000..=30_000;
/// The number of measured sleeps. The cheapest counts, because disturbances only make sleeps
/// dearer.
const SLEEPS: u32 = 5;

/// Returns the processor time (ns) of a sleep and its wake-up, of both threads together; 0 on a
/// single processor, on which no other thread can run while this one spins. The first call in a
/// process measures the cost, which takes about half a millisecond, a fifth of it processor time.
/// No call waits for another one's measurement, which is not there any more in a child of fork(2),
/// and stands still under a signal handler.
pub fn sleep_cost_ns() -> u64 {
    /// The cost and one.
    static COST: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let known = COST.get_or_init(|| {
        let cost = if processors() < 2 { 0 } else { measure() as usize };
        NonZeroUsize::MIN.saturating_add(cost)
    });
    known.get() as u64 - 1
}

/// Measures sleeps that a timer ends. Such a sleep costs its thread as much as a sleep costs the
/// sleeper and the wake-up costs the waker together, because the timer's interrupt is charged to
/// the sleeper's processor. So no other thread is needed.
fn measure() -> u64 {
    crate::fault::point("shm.cost");
    let word = AtomicU32::new(0);
    let sleep = |_| {
        let start = thread_time_ns()?;
        crate::futex::wait(&word, 0, Some(Duration::from_nanos(1)));
        thread_time_ns()?.checked_sub(start)
    };
    let cheapest = (0..SLEEPS).filter_map(sleep).min();
    cheapest.unwrap_or(0).clamp(*COST_NS.start(), *COST_NS.end())
}

/// Returns the processor time of this thread in nanoseconds.
fn thread_time_ns() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, nanoseconds): (c_long, c_long) = (time.tv_sec, time.tv_nsec);
    (answer == 0).then_some(seconds as u64 * 1_000_000_000 + nanoseconds as u64)
}

/// The time at which a wait was given up, to be compared with the beginning of the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GivenUp(Option<u64>);

impl GivenUp {
    pub(super) fn now() -> Self {
        Self(Some(now_ns()))
    }

    /// Takes the time and returns the nanoseconds since then; `None` if it was taken before.
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
