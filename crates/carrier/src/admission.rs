//! The order in which joined sessions move out: a few of each program at a time.
//!
//! From the moment at which a program's side may use the ring until its library has the session,
//! what it writes waits. Where fifty sessions of a program move at once each waits for the other
//! forty-nine; in turn each waits for one. A session that takes long, because its program does not
//! give up the kernel, holds up the next ones for a while only. Not here: the moves (`moves`).

use crate::clock::later;
use sojourn_proto::time::Instant;
use sojourn_session::{InboxNumber, LocalNumber};
use std::collections::{HashMap, VecDeque};

/// Sessions of a program that move at once.
const MOVING_MAX: usize = 2;
/// The time after which a session that still moves does not hold up others (microseconds).
const HOLD_LIMIT_US: u64 = 10_000;

/// A session that was admitted.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    local: LocalNumber,
    at: Instant,
}

/// The sessions of one program.
#[derive(Debug, Default)]
struct Line {
    moving: Vec<Admitted>,
    queue: VecDeque<LocalNumber>,
}

/// The lines, by the inboxes at which the programs are told of their sessions.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    lines: HashMap<InboxNumber, Line>,
}

impl Admission {
    /// Adds a session of the program with that inbox.
    pub(crate) fn push(&mut self, program: InboxNumber, local: LocalNumber) {
        self.lines.entry(program).or_default().queue.push_back(local);
    }

    /// Returns a session that is to move now. Of the sessions that were admitted before, those that
    /// `is_moving` says count for a while.
    pub(crate) fn next(
        &mut self,
        at: Instant,
        is_moving: impl Fn(LocalNumber) -> bool,
    ) -> Option<LocalNumber> {
        let mut next = None;
        self.lines.retain(|_, line| {
            line.moving.retain(|one| at < later(one.at, HOLD_LIMIT_US) && is_moving(one.local));
            if next.is_none() && line.moving.len() < MOVING_MAX {
                next = line.queue.pop_front();
                line.moving.extend(next.map(|local| Admitted { local, at }));
            }
            !line.moving.is_empty() || !line.queue.is_empty()
        });
        next
    }

    /// Returns the time at which the next session may be admitted, whatever becomes of those that
    /// move.
    pub(crate) fn due(&self) -> Option<Instant> {
        let held_up = self.lines.values().filter(|line| !line.queue.is_empty());
        held_up
            .filter_map(|line| line.moving.iter().map(|one| later(one.at, HOLD_LIMIT_US)).min())
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_micros(us)
    }

    /// Admits as many as may move.
    fn admit(admission: &mut Admission, us: u64, moving: &[u64]) -> Vec<u64> {
        let mut fresh = Vec::new();
        loop {
            let is_moving =
                |local: LocalNumber| moving.contains(&local.0) || fresh.contains(&local.0);
            let Some(local) = admission.next(at(us), is_moving) else { return fresh };
            fresh.push(local.0);
        }
    }

    #[test]
    fn a_few_of_each_program_move_at_once_in_their_order() {
        let mut admission = Admission::default();
        for n in 0..6 {
            admission.push(InboxNumber(1), LocalNumber(n));
            admission.push(InboxNumber(2), LocalNumber(10 + n));
        }
        let mut first = admit(&mut admission, 0, &[]);
        first.sort_unstable();
        assert_eq!(first, [0, 1, 10, 11]);
        assert_eq!(admit(&mut admission, 1, &[1, 10, 11]), [2], "one is away");
        assert_eq!(admit(&mut admission, 2, &[1, 2, 10, 11]), [0; 0]);
        let mut rest = admit(&mut admission, 3, &[]);
        rest.sort_unstable();
        assert_eq!(rest, [3, 4, 12, 13]);
        rest = admit(&mut admission, 4, &[]);
        rest.sort_unstable();
        assert_eq!(rest, [5, 14, 15]);
        assert_eq!(admit(&mut admission, 5, &[]), [0; 0]);
        assert!(admission.lines.is_empty());
    }

    #[test]
    fn sessions_that_take_long_hold_up_others_for_a_while() {
        let mut admission = Admission::default();
        (0..3).for_each(|n| admission.push(InboxNumber(1), LocalNumber(n)));
        let all = [0, 1, 2];
        assert_eq!(admit(&mut admission, 5, &all), [0, 1]);
        let due = admission.due();
        assert_eq!(due, Some(at(5 + HOLD_LIMIT_US)));
        assert_eq!(admit(&mut admission, 5 + HOLD_LIMIT_US - 1, &all), [0; 0]);
        assert_eq!(admit(&mut admission, 5 + HOLD_LIMIT_US, &all), [2]);
        assert_eq!(admission.due(), None, "nobody waits");
    }
}
