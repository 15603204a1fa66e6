//! What clients make a server's process hold, counted by user.
//!
//! A process has a limited number of mappings and of descriptors, and without any left it serves
//! nobody. What each client may have is limited elsewhere (`packets`), but a user may have many
//! clients. So each user leaves as much for others as it has. Not here: the number of clients
//! (`options`).

use crate::lock::lock;
use rustix::process::{Resource, Uid, getrlimit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The most grants of all clients: a quarter of the mappings that the kernel lets a process have by
/// default (`vm.max_map_count`).
const GRANTS_MAX: usize = 16 << 10;
/// The part of the process's descriptors that may wait for their requests, and the least number.
const DESCRIPTORS_PART: u64 = 4;
const DESCRIPTORS_MIN: u64 = 64;
const DESCRIPTORS_MAX: u64 = 64 << 10;

/// The limited resources of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// Registered grants; each is a mapping.
    pub(crate) grants: Arc<Shares>,
    /// Descriptors that came before the requests that announce them.
    pub(crate) descriptors: Arc<Shares>,
}

impl Budget {
    /// Returns the budget of an endpoint in this process.
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = (limit / DESCRIPTORS_PART).clamp(DESCRIPTORS_MIN, DESCRIPTORS_MAX);
        Self { grants: Shares::new(GRANTS_MAX), descriptors: Shares::new(most as usize) }
    }
}

/// The users' shares of one resource.
#[derive(Debug)]
pub struct Shares {
    max: usize,
    by_user: Mutex<HashMap<Uid, usize>>,
}

impl Shares {
    /// Shares out so many.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, by_user: Mutex::default() })
    }

    /// Counts so many more of a user. `None` if the user would have more than it leaves for others.
    #[must_use]
    pub fn take(self: &Arc<Self>, user: Uid, count: usize) -> Option<Share> {
        let mut by_user = lock(&self.by_user);
        let left = self.max.saturating_sub(by_user.values().sum());
        let theirs = by_user.get(&user).copied().unwrap_or(0);
        if theirs.saturating_add(count) > left {
            return None;
        }
        by_user.insert(user, theirs + count);
        drop(by_user);
        Some(Share { shares: Arc::clone(self), user, count })
    }
}

/// A counted share, until it is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    user: Uid,
    count: usize,
}

impl Share {
    /// Returns the user whose share it is.
    #[must_use]
    pub fn user(&self) -> Uid {
        self.user
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut by_user = lock(&self.shares.by_user);
        if let Some(theirs) = by_user.get_mut(&self.user) {
            *theirs -= self.count;
            if *theirs == 0 {
                by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_as_much_for_others_as_it_has() {
        let shares = Shares::new(800);
        let taken = |user, count| -> Vec<Share> {
            let user = Uid::from_raw(user);
            core::iter::from_fn(|| shares.take(user, count)).take(1000).collect()
        };
        let first = taken(1, 1);
        assert_eq!(first.len(), 400, "half of all, and one more leaves one less");
        let second = taken(2, 10);
        assert_eq!(second.len(), 20);
        assert!(taken(1, 1).is_empty());
        drop(first);
        assert_eq!(taken(1, 300).len(), 1);
        drop(second);
        assert!(shares.take(Uid::from_raw(3), 801).is_none());
        assert!(lock(&shares.by_user).is_empty());
    }
}
