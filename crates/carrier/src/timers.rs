//! The times at which sessions are to be attended to again: at most one for each.
//!
//! Not here: the attending (`moves::attend`).

use sojourn_proto::time::Instant;
use sojourn_session::LocalNumber;
use std::collections::{BTreeSet, HashMap};

/// The time of a session; the order is that of the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    when: Instant,
    local: LocalNumber,
}

/// The times, by the carrier's numbers of sessions.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// The times in order.
    queue: BTreeSet<Due>,
    times: HashMap<LocalNumber, Instant>,
}

impl Timers {
    /// Sets a session's time, in place of an earlier one; `None` removes it.
    pub(crate) fn set(&mut self, local: LocalNumber, when: Option<Instant>) {
        if let Some(before) = self.times.remove(&local) {
            self.queue.remove(&Due { when: before, local });
        }
        if let Some(when) = when {
            self.times.insert(local, when);
            self.queue.insert(Due { when, local });
        }
    }

    /// Returns the earliest time.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|due| due.when)
    }

    /// Takes a session whose time has come by `at`.
    pub(crate) fn take_due(&mut self, at: Instant) -> Option<LocalNumber> {
        let Due { local, .. } = *self.queue.first().filter(|due| due.when <= at)?;
        self.queue.pop_first();
        self.times.remove(&local);
        Some(local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_one_time_and_comes_up_once() {
        let at = Instant::from_micros;
        let mut timers = Timers::default();
        timers.set(LocalNumber(1), Some(at(5)));
        timers.set(LocalNumber(2), Some(at(7)));
        timers.set(LocalNumber(1), Some(at(9)));
        timers.set(LocalNumber(3), Some(at(7)));
        timers.set(LocalNumber(3), None);
        assert_eq!(timers.next(), Some(at(7)));
        assert_eq!(timers.take_due(at(6)), None);
        assert_eq!(timers.take_due(at(9)), Some(LocalNumber(2)));
        assert_eq!(timers.take_due(at(9)), Some(LocalNumber(1)));
        assert_eq!(timers.take_due(at(9)), None);
        assert_eq!(timers.next(), None);
    }
}
