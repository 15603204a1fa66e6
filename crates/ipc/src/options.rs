//! The options and limits of a server.
//!
//! Not here: a client's options (`connect`).

use crate::wait::Wait;
use rustix::process::Uid;

/// The options and limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// The way in which the server's threads wait.
    pub wait: Wait,
    /// Bytes of a message that travel in one piece, for each of a client's slots.
    pub area: u64,
    /// Longest accepted request (bytes).
    pub max_message: u64,
    /// The number of calls that a client may have outstanding, rounded up to a power of two; at
    /// most 64.
    pub max_inflight: u32,
    /// The largest number of clients at one time.
    pub max_clients: u32,
    /// The largest number of clients of one user at one time. 0 means that a user may have half of
    /// the places of `max_clients` that other users leave, and the server's own user all of them.
    /// Further clients are refused with [`crate::Reason::TooManyOfUser`]. Users without a mapping
    /// in the server's user name space count as one (`/proc/sys/kernel/overflowuid`).
    pub clients_per_user_max: u32,
    /// The user that counts as the server's own; `None` is the user of the process.
    pub own_user: Option<Uid>,
    /// Bytes of memory that one client may register as grants.
    pub max_granted: u64,
    /// String items of a request that fits its area stay in the region, where the client can change
    /// them at any moment: [`crate::Request::item_span`]. Items of larger requests are copied.
    pub items_in_place: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            wait: Wait::Adaptive,
            area: 64 << 10,
            max_message: 16 << 20,
            max_inflight: 8,
            max_clients: 4096,
            clients_per_user_max: 0,
            own_user: None,
            max_granted: 256 << 20,
            items_in_place: false,
        }
    }
}

/// The numbers of clients that an endpoint has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    /// Those of the user in question.
    pub(crate) theirs: usize,
    pub(crate) all: usize,
}

impl ServerOptions {
    /// Returns true if `user` has as many clients as it may have. By default each user but the
    /// server's own must leave as many places free as it has, so that some places are left even if
    /// many users take all that they may.
    pub(crate) fn is_full_for(&self, user: Uid, own: Uid, clients: Clients) -> bool {
        let Clients { theirs, all } = clients;
        let left = (self.max_clients as usize).saturating_sub(all + 1);
        let takes_too_much =
            self.clients_per_user_max == 0 && user != own && theirs > 0 && theirs + 1 > left;
        theirs >= self.clients_of(user, own) || takes_too_much
    }

    /// Returns the number of clients that `user` may have at a server that runs as `own`.
    pub(crate) fn clients_of(&self, user: Uid, own: Uid) -> usize {
        match self.clients_per_user_max {
            0 if user == own => usize::MAX,
            0 => (self.max_clients as usize / 2).max(1),
            max => max as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_may_have_so_many_clients() {
        let (own, other) = (Uid::from_raw(7), Uid::from_raw(8));
        let of = |max_clients, clients_per_user_max| {
            let options =
                ServerOptions { max_clients, clients_per_user_max, ..ServerOptions::default() };
            (options.clients_of(own, own), options.clients_of(other, own))
        };
        assert_eq!(of(4096, 0), (usize::MAX, 2048));
        assert_eq!(of(1, 0), (usize::MAX, 1));
        let options = ServerOptions { max_clients: 100, ..ServerOptions::default() };
        let is_full = |theirs, all| options.is_full_for(other, own, Clients { theirs, all });
        assert!(!is_full(49, 49) && is_full(50, 50));
        assert!(!is_full(24, 74) && is_full(25, 75), "another has fifty");
        assert!(!is_full(0, 99), "one more");
        assert_eq!(of(100, 3), (3, 3));
    }
}
