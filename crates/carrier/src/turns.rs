//! Things that wait, of several users: one of each user in turn, those of one user in their order.
//!
//! Not here: what waits (`commands`, `assistants`).

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Things of type `T`, by users.
#[derive(Debug)]
pub(crate) struct Turns<U, T> {
    by_user: HashMap<U, VecDeque<T>>,
    /// The users who have things here, the next one first.
    turns: VecDeque<U>,
}

impl<U, T> Default for Turns<U, T> {
    fn default() -> Self {
        Self { by_user: HashMap::new(), turns: VecDeque::new() }
    }
}

impl<U: Copy + Eq + Hash, T> Turns<U, T> {
    pub(crate) fn push(&mut self, user: U, thing: T) {
        let theirs = self.by_user.entry(user).or_default();
        if theirs.is_empty() {
            self.turns.push_back(user);
        }
        theirs.push_back(thing);
    }

    /// Takes the next thing of the next user for whom `may` holds; the others keep their turns.
    pub(crate) fn pop(&mut self, may: impl Fn(U) -> bool) -> Option<T> {
        let at = self.turns.iter().position(|user| may(*user))?;
        let user = self.turns.remove(at)?;
        let theirs = self.by_user.get_mut(&user)?;
        let next = theirs.pop_front();
        match theirs.is_empty() {
            true => drop(self.by_user.remove(&user)),
            false => self.turns.push_back(user),
        }
        next
    }

    /// Lists the users who have things here.
    pub(crate) fn users(&self) -> impl Iterator<Item = U> {
        self.turns.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_to_wait_keeps_its_turn_and_holds_up_nobody() {
        let mut turns = Turns::default();
        for (user, thing) in [(1, 'a'), (1, 'b'), (2, 'c'), (3, 'd')] {
            turns.push(user, thing);
        }
        assert_eq!(turns.pop(|user| user != 1), Some('c'));
        assert_eq!(turns.pop(|_| true), Some('a'));
        assert_eq!(turns.pop(|user| user == 2), None);
        assert_eq!(turns.users().collect::<Vec<_>>(), [3, 1]);
        assert_eq!((turns.pop(|_| true), turns.pop(|_| true)), (Some('d'), Some('b')));
        assert!(turns.is_empty() && turns.by_user.is_empty() && turns.pop(|_| true).is_none());
    }
}
