//! The time that this process spends waiting for peers on the way home, in all.
//!
//! Nothing depends on these waits: a living peer puts owed bytes into the kernel before it writes
//! anything else. So a process with many peers that do not answer, because they are stopped or
//! hostile, is not held up by each of them in turn: all waits draw on one budget, which recovers as
//! time passes. Honest peers take some ten microseconds of it. Not here: the waits (`moves::home`,
//! `moves::flush`), and the sessions that go home together (`moves::together`).

use crate::session::Session;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use sojourn_shm::Deadline;
use sojourn_shm::deadline::now_ns;

/// How long a thread that passes a descriptor on waits for the peer to put owed bytes into the
/// kernel.
pub(crate) const PASS_LIMIT: Duration = Duration::from_secs(1);
/// The same where calls on the descriptor do not wait (`O_NONBLOCK`) and it is not passed on.
const PASS_LIMIT_NONBLOCKING: Duration = Duration::from_millis(20);
/// The budget of waits for room in the kernel, where a session with another host is lost without:
/// the other host may be slow, or hostile.
pub(crate) const ROOM_MOST: Duration = Duration::from_secs(20);
/// How many times as long as a wait its recovery takes.
const RECOVERY: u64 = 10;

/// The deadlines of one return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// For room in the kernel, if the rest cannot follow later.
    pub(crate) room: Deadline,
    /// For the peer to put owed bytes into the kernel.
    pub(crate) peer: Deadline,
}

impl Waits {
    /// Waits for no peer: owed bytes come when they come.
    pub(crate) const NOT: Self = Self { room: Deadline::NEVER, peer: Deadline::NOW };

    /// Waits for both until `deadline`.
    pub(crate) fn until(deadline: Deadline) -> Self {
        Self { room: deadline, peer: deadline }
    }
}

/// A budget of this process.
#[derive(Debug)]
pub(crate) struct Patience {
    most: Duration,
    /// The time (nanoseconds) at which the budget is whole again: each wait puts that off by
    /// [`RECOVERY`] times its length.
    whole_ns: AtomicU64,
}

impl Patience {
    /// Makes a whole budget.
    pub(crate) const fn new(most: Duration) -> Self {
        Self { most, whole_ns: AtomicU64::new(0) }
    }

    /// Returns the deadline for a wait that begins now, `limit` away at most.
    pub(crate) fn until(&self, limit: Duration) -> Deadline {
        let missing_ns = self.whole_ns.load(Ordering::Relaxed).saturating_sub(now_ns()) / RECOVERY;
        let left = self.most.saturating_sub(Duration::from_nanos(missing_ns));
        if left.is_zero() { Deadline::NOW } else { Deadline::after(left.min(limit)) }
    }

    /// Makes the budget whole, of which other tests of this process have taken.
    #[cfg(test)]
    pub(crate) fn restore(&self) {
        self.whole_ns.store(0, Ordering::Relaxed);
    }

    /// Takes a wait that began at `begun_ns` off the budget.
    pub(crate) fn waited_since(&self, begun_ns: u64) {
        let now = now_ns();
        let cost = now.saturating_sub(begun_ns).saturating_mul(RECOVERY);
        // The store may lose another thread's: threads that wait at the same time spend the same
        // time.
        let whole = self.whole_ns.load(Ordering::Relaxed).max(now);
        self.whole_ns.store(whole.saturating_add(cost), Ordering::Relaxed);
    }
}

impl Session {
    /// Returns the longest wait for the peer of a call on this session, if the session goes home
    /// for the call.
    pub(crate) fn pass_limit(&self) -> Duration {
        let is_nonblocking = self.is_nonblocking.load(Ordering::Relaxed);
        if is_nonblocking { PASS_LIMIT_NONBLOCKING } else { PASS_LIMIT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_waits_take_no_longer_than_one() {
        let patience = Patience::new(PASS_LIMIT);
        let left = |patience: &Patience| patience.until(PASS_LIMIT).left().unwrap();
        assert!(left(&patience) > Duration::from_millis(900));
        // A wait of 0.6 s, and one of 0.5 s.
        patience.waited_since(now_ns() - 600_000_000);
        assert!(left(&patience) <= Duration::from_millis(450));
        patience.waited_since(now_ns() - 500_000_000);
        assert_eq!(patience.until(PASS_LIMIT), Deadline::NOW);
        // Ten seconds later.
        patience.whole_ns.fetch_sub(11_000_000_000, Ordering::Relaxed);
        assert!(left(&patience) > Duration::from_millis(900));
    }

    #[test]
    fn short_waits_of_honest_peers_leave_it_whole() {
        let patience = Patience::new(PASS_LIMIT);
        (0..1000).for_each(|_| patience.waited_since(now_ns() - 50_000));
        assert!(patience.until(PASS_LIMIT).left().unwrap() > Duration::from_millis(900));
    }
}
