//! The times at which the protocol thread looks for a session server: soon after it has lost one,
//! then less and less often.
//!
//! The search finds a server that is replaced after a few milliseconds. It finds one that was away
//! for a while after about as long again. A server that never comes costs an attempt every other
//! second. Not here: the attempts (`protocol`).

use core::time::Duration;
use sojourn_shm::Deadline;

/// The first pause between two attempts; each later one is twice the one before.
const FIRST: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(2);

/// The state of the search.
#[derive(Debug)]
pub(crate) struct Search {
    /// The pause after the next attempt.
    pause: Duration,
    next: Deadline,
}

impl Search {
    /// Starts a search, with an attempt due now.
    pub(crate) fn new() -> Self {
        Self { pause: FIRST, next: Deadline::NOW }
    }

    /// Returns true if an attempt is due, and counts it as made.
    pub(crate) fn begins_attempt(&mut self) -> bool {
        let is_due = self.next.is_over();
        if is_due {
            self.wait();
        }
        is_due
    }

    /// Returns the time until the next attempt.
    pub(crate) fn left(&self) -> Duration {
        self.next.left().unwrap_or(LONGEST)
    }

    /// Notes that a server is gone that had served this process for `lasted`. A server that comes
    /// and goes is looked for without haste.
    pub(crate) fn lost(&mut self, lasted: Duration) {
        if lasted >= LONGEST {
            self.pause = FIRST;
        }
        self.wait();
    }

    fn wait(&mut self) {
        self.next = Deadline::after(self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits as long as it says, as a thread would that has nothing else to do; but not longer than
    /// some.
    fn attempts_within(search: &mut Search, limit: Duration) -> u32 {
        let (mut attempts, mut passed) = (0, Duration::ZERO);
        while passed < limit {
            search.next = Deadline::NOW;
            assert!(search.begins_attempt());
            attempts += 1;
            passed += search.left();
        }
        attempts
    }

    #[test]
    fn the_first_attempt_is_made_at_once() {
        let mut search = Search::new();
        assert!(search.begins_attempt());
        assert!(!search.begins_attempt());
    }

    #[test]
    fn attempts_come_soon_at_first_and_then_seldom() {
        let mut search = Search::new();
        let soon = attempts_within(&mut search, Duration::from_millis(500));
        assert!((4..=7).contains(&soon), "{soon}");
        let later = attempts_within(&mut search, Duration::from_secs(60));
        assert!(later <= 35, "{later}");
        assert!(search.left() <= LONGEST);
    }

    #[test]
    fn a_loss_after_long_service_is_looked_after_at_once() {
        let mut search = Search::new();
        attempts_within(&mut search, Duration::from_secs(60));
        search.lost(LONGEST);
        assert!(search.left() <= FIRST);
    }

    #[test]
    fn a_server_that_comes_and_goes_is_not_hurried_after() {
        let mut search = Search::new();
        attempts_within(&mut search, Duration::from_secs(60));
        search.lost(Duration::from_millis(1));
        assert!(search.left() > LONGEST / 2);
    }
}
