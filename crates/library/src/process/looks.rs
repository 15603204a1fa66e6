//! Looks through all of the program's descriptors, which take a while: what the last one found, and
//! when the next one is due.
//!
//! The protocol thread's. Not here: looking (`rings`, `unmanaged_sets`).

use core::time::Duration;
use std::time::Instant;

/// The time between two looks while sessions are away: soon after a move, then less and less often.
const FIRST: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_secs(1);
/// How old what was found may be when a session is offered.
const AGE: Duration = Duration::from_millis(20);
/// A look is put off if it takes more than this part of the time between two.
const PART: u32 = 500;
/// The shortest time between two looks through the descriptors; it is longer if a look takes more
/// than a small part of it.
const SETS_PAUSE: Duration = Duration::from_millis(50);
const SETS_PART: u32 = 20;

/// What the last look found, and when the next one is due. The protocol thread's.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    is_found: bool,
    /// When, and how long it took.
    last: Option<(Instant, Duration)>,
    pause: Duration,
}

impl Looks {
    /// A session has moved.
    pub(crate) fn again(&mut self) {
        self.pause = FIRST;
    }

    /// Until the next look while sessions are away.
    pub(crate) fn left(&self) -> Duration {
        self.left_of(self.pause)
    }

    fn left_of(&self, pause: Duration) -> Duration {
        let Some((last, took)) = self.last else { return Duration::ZERO };
        (last + pause.max(took * PART)).saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time to. Whether there is a ring that nobody sees into.
    pub(crate) fn look(&mut self, look: impl FnOnce() -> bool) -> bool {
        if self.left().is_zero() {
            self.look_now(look);
            self.pause = (self.pause * 2).clamp(FIRST, LAST);
        }
        self.is_found
    }

    /// Somebody else has found one.
    pub(crate) fn note(&mut self) {
        self.is_found = true;
    }

    /// The same before an offer, and before a session joins.
    pub(crate) fn look_for_offer(&mut self, look: impl FnOnce() -> bool) -> bool {
        if self.is_found || self.left_of(AGE).is_zero() {
            self.look_now(look);
        }
        self.is_found
    }

    fn look_now(&mut self, look: impl FnOnce() -> bool) {
        let start = Instant::now();
        self.is_found = look();
        self.last = Some((Instant::now(), start.elapsed()));
    }
}

/// The sets found last.
#[derive(Debug, Default)]
pub(crate) struct UnmanagedSets {
    sets: Vec<i32>,
    next: Option<Instant>,
}

impl UnmanagedSets {
    /// The sets, found anew by `find` if it is time to.
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
