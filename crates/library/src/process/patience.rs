//! How long this process waits for peers on the way home, in all.
//!
//! Nothing depends on these waits: a peer that lives puts what it owes into the kernel before it
//! writes anything else. So a process with many peers that do not answer, stopped or hostile ones,
//! is not held up by each of them in turn: there is a time for all of them together, of which some
//! comes back as time passes. Honest peers take some ten microseconds of it. Not here: the waits
//! (`home`, `flush`), which sessions go home together (`together`).

use crate::session::Session;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use sojourn_shm::Deadline;
use sojourn_shm::deadline::now_ns;

/// How long one who passes a descriptor on waits for the peer to put what it owes into the kernel.
pub(crate) const PASS_LIMIT: Duration = Duration::from_secs(1);
/// The same where the program has said that calls on the descriptor do not wait, and it is not
/// passed on.
const PASS_LIMIT_NONBLOCKING: Duration = Duration::from_millis(20);
/// What may be spent at once, and how long it takes until all of that may be spent again.
const MOST: Duration = PASS_LIMIT;
const RECOVERY: u64 = 10;

/// How long one return may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// For room in the kernel, if nothing can follow.
    pub(crate) room: Deadline,
    /// For the peer to put into the kernel what it owes.
    pub(crate) peer: Deadline,
}

impl Waits {
    /// For no peer: what it owes comes when it comes.
    pub(crate) const NOT: Self = Self { room: Deadline::NEVER, peer: Deadline::NOW };

    /// For both until then.
    pub(crate) fn until(deadline: Deadline) -> Self {
        Self { room: deadline, peer: deadline }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Patience {
    /// When all of it has come back (nanoseconds): each wait puts that off, by [`RECOVERY`] times
    /// what it took.
    whole_ns: AtomicU64,
}

impl Patience {
    /// All of it.
    pub(crate) const fn new() -> Self {
        Self { whole_ns: AtomicU64::new(0) }
    }

    /// Until when may be waited now, `limit` at most.
    pub(crate) fn until(&self, limit: Duration) -> Deadline {
        let missing_ns = self.whole_ns.load(Ordering::Relaxed).saturating_sub(now_ns()) / RECOVERY;
        let left = MOST.saturating_sub(Duration::from_nanos(missing_ns));
        if left.is_zero() { Deadline::NOW } else { Deadline::after(left.min(limit)) }
    }

    /// A wait that began then is over.
    pub(crate) fn waited_since(&self, begun_ns: u64) {
        let now = now_ns();
        let cost = now.saturating_sub(begun_ns).saturating_mul(RECOVERY);
        // Of threads that wait at the same time one may count: it is the time that counts, and they
        // spend the same.
        let whole = self.whole_ns.load(Ordering::Relaxed).max(now);
        self.whole_ns.store(whole.saturating_add(cost), Ordering::Relaxed);
    }
}

impl Session {
    /// How long a call on this session waits for the peer, if the session goes home for it.
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
        let patience = Patience::new();
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
        let patience = Patience::new();
        (0..1000).for_each(|_| patience.waited_since(now_ns() - 50_000));
        assert!(patience.until(PASS_LIMIT).left().unwrap() > Duration::from_millis(900));
    }
}
