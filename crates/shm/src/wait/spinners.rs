//! The threads of this process that spin.
//!
//! Each spinner waits for a thread of another process, which needs a processor as well. Spinners
//! beyond half of the processors take it away from those that they wait for, and from the other
//! threads of this process: in a server with several threads that each wait for a client, one
//! computes while the others would spin. Not here: the length of a spin (`pace`).

use super::load::processors;
use core::sync::atomic::{AtomicU64, Ordering};

/// The largest number of spinners.
const MOST: usize = 16;
const FREE: u64 = 0;

/// The spinners of a process whose waits are for other processes.
///
/// Each has a place with the time at which its spin ends at the latest. So a place becomes free
/// even if its thread never gives it back: a signal handler may jump out of a wait (siglongjmp(3)),
/// and a child of `fork` does not have the parent's other threads.
#[derive(Debug, Default)]
pub(super) struct Spinners([AtomicU64; MOST]);

/// The spinners of this process.
pub(super) static HERE: Spinners = Spinners::new();

/// The permission to spin, until it is dropped or its time is over.
#[derive(Debug)]
pub(super) struct SpinnerPermit<'a> {
    place: &'a AtomicU64,
    until_ns: u64,
}

impl Spinners {
    /// Makes the places of a process without spinners.
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(FREE) }; MOST])
    }

    /// Returns the permission to spin from `now_ns` for `budget_ns`, unless as many threads spin as
    /// may.
    pub(super) fn permit(&self, now_ns: u64, budget_ns: u64) -> Option<SpinnerPermit<'_>> {
        self.permit_of(processors() / 2, now_ns, budget_ns)
    }

    fn permit_of(&self, most: usize, now_ns: u64, budget_ns: u64) -> Option<SpinnerPermit<'_>> {
        let until_ns = now_ns.saturating_add(budget_ns);
        self.0.iter().take(most.max(1)).find_map(|place| {
            let before = place.load(Ordering::Relaxed);
            let is_mine = before <= now_ns
                && place
                    .compare_exchange(before, until_ns, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            // Made only if the place is this thread's: what is dropped gives it back.
            is_mine.then(|| SpinnerPermit { place, until_ns })
        })
    }
}

impl Drop for SpinnerPermit<'_> {
    fn drop(&mut self) {
        // After its time another thread may have the place.
        let order = Ordering::Relaxed;
        let _ = self.place.compare_exchange(self.until_ns, FREE, order, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_spin_as_there_are_processors_for_them_and_for_their_peers() {
        let spinners = Spinners::new();
        let permit = |most| spinners.permit_of(most, 100, 10);
        let (first, second) = (permit(2), permit(2));
        assert!(first.is_some() && second.is_some() && permit(2).is_none());
        drop(first);
        assert!(permit(2).is_some());
        drop(second);
        assert!(permit(0).is_some(), "one may always");
    }

    #[test]
    fn a_place_that_is_not_given_back_becomes_free_by_itself() {
        let spinners = Spinners::new();
        let lost = spinners.permit_of(1, 100, 10);
        assert!(spinners.permit_of(1, 109, 10).is_none());
        let next = spinners.permit_of(1, 110, 10);
        assert!(next.is_some());
        drop(lost);
        assert!(spinners.permit_of(1, 111, 10).is_none(), "the place is the next one's now");
    }
}
