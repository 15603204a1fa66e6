//! Shares of users in the time of one look: whoever has very many processes, or descriptors, keeps
//! nobody else from an answer.
//!
//! A user may have half of what the others have left of half of the time: so some is always left,
//! however many users take what they may. The other half is for the least that every user may have,
//! whatever others take: a process that is not looked at may be a holder who is not counted, and
//! who has many user numbers must not bring that about for another user's. Where that is not
//! enough, the look ends without an answer. Not here: who pays for a process (`proc`), what follows
//! for the processes that are not looked at any more (`holders`).

use rustix::process::Uid;
use std::collections::HashMap;
use std::time::Duration;

/// The part of the time that every user may have.
const LEAST: u32 = 200;

/// The time that each user's processes have taken.
#[derive(Debug)]
pub(super) struct Shares {
    limit: Duration,
    spent: HashMap<Uid, Spent>,
    total: Duration,
}

#[derive(Debug, Default)]
struct Spent {
    time: Duration,
    is_over: bool,
}

impl Shares {
    pub(super) fn of(limit: Duration) -> Self {
        Self { limit, spent: HashMap::new(), total: Duration::ZERO }
    }

    /// Notes that a process of the user has taken so long.
    pub(super) fn spend(&mut self, user: Uid, time: Duration) {
        let spent = self.spent.entry(user).or_default();
        spent.time = spent.time.saturating_add(time);
        self.total = self.total.saturating_add(time);
        let by_others = self.total.saturating_sub(spent.time);
        let share = (self.limit / 2).saturating_sub(by_others) / 2;
        spent.is_over |= spent.time > share.max(self.limit / LEAST);
    }

    /// Returns true if the user has had its share: some of its processes were not looked at.
    pub(super) fn is_over(&self, user: Uid) -> bool {
        self.spent.get(&user).is_some_and(|spent| spent.is_over)
    }

    /// Returns true if any user has had its share.
    pub(super) fn is_any_over(&self) -> bool {
        self.spent.values().any(|spent| spent.is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_others_take_some_time_is_left() {
        let second = Duration::from_secs(1);
        let mut shares = Shares::of(second);
        let honest = Uid::from_raw(1);
        shares.spend(honest, second / 1000);
        for stranger in (2..9).map(Uid::from_raw) {
            while !shares.is_over(stranger) {
                shares.spend(stranger, second / 10_000);
            }
            assert!(shares.total < second);
        }
        shares.spend(honest, second / 1000);
        assert!(!shares.is_over(honest) && shares.is_any_over());
        shares.spend(honest, second);
        assert!(shares.is_over(honest));
    }

    /// A holder would not be counted otherwise, and its end be taken for somebody's alone.
    #[test]
    fn no_number_of_strangers_has_anothers_processes_passed_over() {
        let second = Duration::from_secs(1);
        let (mut shares, honest) = (Shares::of(second), Uid::from_raw(1));
        for stranger in (2..64).map(Uid::from_raw) {
            while !shares.is_over(stranger) {
                shares.spend(stranger, second / 10_000);
            }
        }
        assert!(shares.total < second, "the look ends without an answer");
        shares.spend(honest, second / 250);
        assert!(!shares.is_over(honest) && shares.is_any_over());
        shares.spend(honest, second / 250);
        assert!(shares.is_over(honest));
    }
}
