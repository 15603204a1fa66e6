//! The schedule of looks through all of the program's descriptors, and the results of the last.
//!
//! Such a look takes a while where there are many descriptors. The protocol thread makes them. Not
//! here: the looks themselves (`policy::rings`, `policy::unmanaged_sets`).

use core::time::Duration;
use std::time::Instant;

/// The time between two looks while sessions are away: short after a move, then longer and longer.
const FIRST: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_secs(1);
/// How old a result may be when a session is offered.
const AGE: Duration = Duration::from_millis(20);
/// The pause after a look is at least this many times the look's own length.
const PART: u32 = 500;
/// The shortest time between two looks for sets, and the same multiple for them.
const SETS_PAUSE: Duration = Duration::from_millis(50);
const SETS_PART: u32 = 20;

/// A look that is over.
#[derive(Clone, Copy, Debug)]
struct PastScan {
    ended: Instant,
    took: Duration,
}

/// The looks for io_urings: the last result, and when the next look is due.
#[derive(Debug, Default)]
pub(crate) struct RingScans {
    is_found: bool,
    last: Option<PastScan>,
    pause: Duration,
}

impl RingScans {
    /// Begins the short pauses again, because a session has moved.
    pub(crate) fn again(&mut self) {
        self.pause = FIRST;
    }

    /// Returns the time until the next look while sessions are away.
    pub(crate) fn left(&self) -> Duration {
        self.left_of(self.pause)
    }

    fn left_of(&self, pause: Duration) -> Duration {
        let Some(PastScan { ended, took }) = self.last else { return Duration::ZERO };
        (ended + pause.max(took * PART)).saturating_duration_since(Instant::now())
    }

    /// Looks if a look is due; returns true if there is a ring that the shell does not see into.
    pub(crate) fn look(&mut self, look: impl FnOnce() -> bool) -> bool {
        if self.left().is_zero() {
            self.look_now(look);
            self.pause = (self.pause * 2).clamp(FIRST, LAST);
        }
        self.is_found
    }

    /// Notes that another thread has found such a ring.
    pub(crate) fn note(&mut self) {
        self.is_found = true;
    }

    /// Looks before an offer, and before a session joins, unless the last result is fresh.
    pub(crate) fn look_for_offer(&mut self, look: impl FnOnce() -> bool) -> bool {
        if self.is_found || self.left_of(AGE).is_zero() {
            self.look_now(look);
        }
        self.is_found
    }

    fn look_now(&mut self, look: impl FnOnce() -> bool) {
        let start = Instant::now();
        self.is_found = look();
        self.last = Some(PastScan { ended: Instant::now(), took: start.elapsed() });
    }
}

/// The looks for epoll sets made past the library: the last result, and when the next is due.
#[derive(Debug, Default)]
pub(crate) struct UnmanagedSets {
    sets: Vec<i32>,
    next: Option<Instant>,
}

impl UnmanagedSets {
    /// Returns the sets; `find` finds them anew if a look is due.
    pub(crate) fn sets(&mut self, find: impl FnOnce() -> Vec<i32>) -> &[i32] {
        let start = Instant::now();
        if self.next.is_none_or(|next| next <= start) {
            self.sets = find();
            let now = Instant::now();
            self.next = Some(now + SETS_PAUSE.max((now - start) * SETS_PART));
        }
        &self.sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_looked_for_now_and_then() {
        let mut known = UnmanagedSets::default();
        assert_eq!(known.sets(|| vec![7]), [7]);
        let next = known.next.unwrap();
        let again = known.sets(|| vec![8]).to_vec();
        assert!(again == [7] || next <= Instant::now(), "{again:?}");
        known.next = Some(Instant::now());
        assert_eq!(known.sets(|| vec![8]), [8]);
    }
}
