//! The shares of users in a thing of which there is a limited number.
//!
//! No user may take so many that fewer would be left to all others together than that user has. So
//! one user has half at most, and however many users take as many as they can, some are left for
//! the next. The server's own user and root may take all. Not here: the things that are counted,
//! and when.

use rustix::process::Uid;
use std::collections::HashMap;

#[derive(Debug)]
pub(super) struct Shares {
    most: usize,
    own_user: Uid,
    used: usize,
    by_user: HashMap<Uid, usize>,
}

impl Shares {
    pub(super) fn new(most: usize, own_user: Uid) -> Self {
        Self { most, own_user, used: 0, by_user: HashMap::new() }
    }

    pub(super) fn may_take(&self, user: Uid, count: usize) -> bool {
        let left = self.most.saturating_sub(self.used.saturating_add(count));
        let is_room = self.used.saturating_add(count) <= self.most;
        let is_free = user.is_root() || user == self.own_user;
        is_room && (is_free || self.of(user).saturating_add(count) <= left)
    }

    pub(super) fn take(&mut self, user: Uid, count: usize) {
        if count == 0 {
            return;
        }
        self.used += count;
        *self.by_user.entry(user).or_default() += count;
    }

    pub(super) fn give_back(&mut self, user: Uid, count: usize) {
        self.used = self.used.saturating_sub(count);
        if let Some(has) = self.by_user.get_mut(&user) {
            *has = has.saturating_sub(count);
            if *has == 0 {
                self.by_user.remove(&user);
            }
        }
    }

    pub(super) fn of(&self, user: Uid) -> usize {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0 && self.by_user.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(shares: &mut Shares, user: Uid) -> usize {
        while shares.may_take(user, 1) {
            shares.take(user, 1);
        }
        shares.of(user)
    }

    #[test]
    fn whoever_takes_what_it_can_leaves_some() {
        let mut shares = Shares::new(1000, Uid::from_raw(7));
        assert_eq!(take_all(&mut shares, Uid::from_raw(1)), 500);
        assert_eq!(take_all(&mut shares, Uid::from_raw(2)), 250);
        assert_eq!(take_all(&mut shares, Uid::from_raw(3)), 125);
        assert_eq!(take_all(&mut shares, Uid::from_raw(1)), 500);
        shares.give_back(Uid::from_raw(1), 400);
        assert!(take_all(&mut shares, Uid::from_raw(4)) > 200);
        for user in [0, 7] {
            let mut shares = Shares::new(1000, Uid::from_raw(7));
            assert_eq!(take_all(&mut shares, Uid::from_raw(user)), 1000);
            assert!(!shares.may_take(Uid::from_raw(1), 1));
        }
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let mut shares = Shares::new(10, Uid::from_raw(7));
        shares.take(Uid::from_raw(1), 4);
        assert!(!shares.may_take(Uid::from_raw(1), 2) && shares.may_take(Uid::from_raw(2), 3));
        shares.give_back(Uid::from_raw(1), 4);
        assert!(shares.is_empty() && shares.may_take(Uid::from_raw(1), 5));
        assert!(Shares::new(usize::MAX, Uid::from_raw(7)).may_take(Uid::from_raw(1), 1 << 40));
    }
}
