//! How much of the server's time each user may take for lists.
//!
//! A list costs as much as the user has sessions and processes, and one thread serves all clients:
//! a user with many of both could ask so often, over many connections, that nobody else is served
//! in time. So a user who has taken a quarter of a second within one second is refused until that
//! is over. Root and the server's own user may take all. Not here: the lists (`admin`).

use rustix::process::Uid;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The time in which [`MOST`] may be taken.
const WINDOW: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug)]
struct Taken {
    since: Instant,
    time: Duration,
}

/// The time that users have taken lately.
#[derive(Debug, Default)]
pub(super) struct Allowance(HashMap<Uid, Taken>);

impl Allowance {
    /// Returns true if a user may ask for one more list.
    pub(super) fn may_ask(&mut self, user: Uid, now: Instant) -> bool {
        self.0.retain(|_, taken| now.saturating_duration_since(taken.since) < WINDOW);
        self.0.get(&user).is_none_or(|taken| taken.time < MOST)
    }

    /// Notes the time that a list of a user's has taken until now.
    pub(super) fn note(&mut self, user: Uid, begun: Instant, now: Instant) {
        let none = Taken { since: begun, time: Duration::ZERO };
        self.0.entry(user).or_insert(none).time += now.saturating_duration_since(begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_taken_enough_waits_and_the_others_do_not() {
        let mut allowance = Allowance::default();
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        for turn in 0..5 {
            assert!(allowance.may_ask(Uid::from_raw(1), at(turn * 50)), "{turn}");
            allowance.note(Uid::from_raw(1), at(turn * 50), at(turn * 50 + 50));
        }
        assert!(
            !allowance.may_ask(Uid::from_raw(1), at(260))
                && allowance.may_ask(Uid::from_raw(2), at(260))
        );
        assert!(!allowance.may_ask(Uid::from_raw(1), at(999)));
        assert!(allowance.may_ask(Uid::from_raw(1), at(1000)) && allowance.0.is_empty());
    }
}
