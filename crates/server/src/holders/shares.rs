//! Shares of users in the time of one look: whoever has very many processes, or descriptors, keeps
//! nobody else from an answer.
//!
//! A user may have half of the time that the others have left: so some is always left, however
//! many users take what they may. Not here: who pays for a process (`proc`), what follows for the
//! processes that are not looked at any more (`holders`).

use rustix::process::Uid;
use std::collections::HashMap;
use std::time::Duration;

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
        spent.is_over |= spent.time > self.limit.saturating_sub(by_others) / 2;
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
}
