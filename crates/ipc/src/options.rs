//! What a server wants and allows.
//!
//! Not here: what a client wants; see `connect`.

use crate::wait::Wait;

/// What a server wants and allows.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// How its threads wait.
    pub wait: Wait,
    /// Bytes of a message that travel in one piece, for each of a client's slots.
    pub area: u64,
    /// Longest request taken (bytes).
    pub max_message: u64,
    /// Calls a client may have outstanding, rounded up to a power of two; at most 64.
    pub max_inflight: u32,
    /// Clients at one time.
    pub max_clients: u32,
    /// Clients at one time that run as the same user; 0: half of what others leave of `max_clients`
    /// for every user but the one that the server runs as, who may have all. More are refused with
    /// [`crate::Reason::TooManyOfUser`]. Users whom the server's user name space does not know
    /// count as one (`/proc/sys/kernel/overflowuid`).
    pub clients_per_user_max: u32,
    /// Bytes of memory that one client may register as grants.
    pub max_granted: u64,
    /// String items of a request that fits its area stay in the region, where the client can change
    /// them at any moment: [`crate::Request::item_span`]. What is larger is copied as ever.
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
            max_granted: 256 << 20,
            items_in_place: false,
        }
    }
}

impl ServerOptions {
    /// Whether user `uid` has as many clients as it may have, where it has `theirs` and there are
    /// `all`. Where nothing else is said, each user but the server's own leaves as many places to
    /// the others as it has, so that however many take what they can, some are left.
    pub(crate) fn is_full_for(&self, uid: u32, own: u32, (theirs, all): (usize, usize)) -> bool {
        let left = (self.max_clients as usize).saturating_sub(all + 1);
        let takes_too_much =
            self.clients_per_user_max == 0 && uid != own && theirs > 0 && theirs + 1 > left;
        theirs >= self.clients_of(uid, own) || takes_too_much
    }

    /// Clients that user `uid` may have, of a server that runs as `own`.
    pub(crate) fn clients_of(&self, uid: u32, own: u32) -> usize {
        match self.clients_per_user_max {
            0 if uid == own => usize::MAX,
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
        let of = |max_clients, clients_per_user_max| {
            let options =
                ServerOptions { max_clients, clients_per_user_max, ..ServerOptions::default() };
            (options.clients_of(7, 7), options.clients_of(8, 7))
        };
        assert_eq!(of(4096, 0), (usize::MAX, 2048));
        assert_eq!(of(1, 0), (usize::MAX, 1));
        let options = ServerOptions { max_clients: 100, ..ServerOptions::default() };
        let is_full = |theirs, all| options.is_full_for(8, 7, (theirs, all));
        assert!(!is_full(49, 49) && is_full(50, 50));
        assert!(!is_full(24, 74) && is_full(25, 75), "another has fifty");
        assert!(!is_full(0, 99), "one more");
        assert_eq!(of(100, 3), (3, 3));
    }
}
