//! How often a session has to become hot before it moves, learnt from the sessions that moved
//! before it.
//!
//! A move costs the two ends and the server some tenths of a millisecond of processor time, which
//! the calls that follow have to save. In a process whose sessions end soon after their moves, as
//! the connections of a server for short requests do, the next ones wait until they have become hot
//! twice, four times, eight times as often. Each that stays away for longer takes most of that
//! back. Not here: the thresholds (`thresholds`), other reasons to wait
//! (`policy::hot`).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

/// A session that was away for less than that has not been worth its move: what a move costs is
/// more than one part in a hundred of that time.
const SHORT: Duration = Duration::from_millis(50);
/// A session that was away for that long has been worth it. Of those in between nobody knows: on a
/// busy machine programs stand still for so long.
const LONG: Duration = Duration::from_millis(250);
/// So has one with so many bytes: their copies into the kernel and out of it take longer than a
/// move.
const MANY_BYTES: u64 = 1 << 20;
/// The shortest time between two longer waits: many sessions that end at once, as at the end of a
/// client, say no more than one.
const RAISE_NS: u64 = 20_000_000;
/// The largest wait, as a power of two. With the default thresholds it is 4,096 calls, of which the
/// kernel's part takes tens of times as long as a move.
const LEVEL_MAX: u32 = 7;

/// What a process has learnt of its sessions.
#[derive(Debug)]
pub(crate) struct Lifetimes {
    /// The binary logarithm of [`Lifetimes::times`].
    level: AtomicU32,
    /// When it was last raised, in nanoseconds of the monotonic clock.
    raised_ns: AtomicU64,
}

impl Lifetimes {
    pub(crate) const fn new() -> Self {
        Self { level: AtomicU32::new(0), raised_ns: AtomicU64::new(0) }
    }

    /// Returns how often a session has to become hot before it is offered.
    pub(crate) fn times(&self) -> u32 {
        1 << self.level.load(Ordering::Relaxed)
    }

    /// Notes that a session has come home, or has ended, after it was away for `time` and `bytes`
    /// went through it. One that was offered and has not moved before it ended was away for no
    /// time.
    pub(crate) fn ended(&self, now_ns: u64, time: Duration, bytes: u64) {
        let level = self.level.load(Ordering::Relaxed);
        let next = if time >= LONG || bytes >= MANY_BYTES {
            level / 2
        } else if time < SHORT
            && now_ns.saturating_sub(self.raised_ns.load(Ordering::Relaxed)) >= RAISE_NS
        {
            self.raised_ns.store(now_ns, Ordering::Relaxed);
            (level + 1).min(LEVEL_MAX)
        } else {
            level
        };
        // One of two threads that note at once may be overlooked.
        self.level.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn later(number: u64) -> u64 {
        (number + 1) * RAISE_NS
    }

    #[test]
    fn sessions_that_end_soon_make_the_next_ones_wait_twice_as_long() {
        let lifetimes = Lifetimes::new();
        let times = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|number| {
            let times = lifetimes.times();
            lifetimes.ended(later(number), SOON, 100);
            times
        });
        assert_eq!(times, [1, 2, 4, 8, 16, 32, 64, 128, 128]);
    }

    #[test]
    fn many_that_end_at_once_count_as_one() {
        let lifetimes = Lifetimes::new();
        (0..1000).for_each(|number| lifetimes.ended(later(0) + number, SOON, 0));
        assert_eq!(lifetimes.times(), 2);
    }

    #[test]
    fn sessions_that_were_worth_their_moves_take_the_wait_back() {
        for (time, bytes) in [(LONG, 0), (SOON, MANY_BYTES)] {
            let lifetimes = Lifetimes::new();
            lifetimes.ended(later(0), SHORT, 0);
            assert_eq!(lifetimes.times(), 1, "neither soon nor late");
            (0..7).for_each(|number| lifetimes.ended(later(number), SOON, 0));
            let times = [(); 4].map(|()| {
                lifetimes.ended(later(7), time, bytes);
                lifetimes.times()
            });
            assert_eq!(times, [8, 2, 1, 1]);
        }
    }
}
