//! A delegation: a session with another host, or a UDP socket, that the server hands to this
//! process.
//!
//! Not here: receiving it (`control::protocol`), and running its engine (`net`).

use sojourn_proto::record::SessionRecord;
use sojourn_session::DelegateT;
use sojourn_shm::MovableFd;

/// The sockets of an interface, in the program's table.
#[derive(Debug)]
pub(crate) struct LinkSockets {
    /// The packet socket.
    pub(crate) packets: MovableFd,
    /// The AF_XDP socket for short frames, if the server gives one.
    pub(crate) xdp: Option<MovableFd>,
}

impl LinkSockets {
    /// Names the descriptors of a delegation, in the order in which they were passed.
    pub(crate) fn of(placed: Vec<MovableFd>) -> Option<Self> {
        let mut placed = placed.into_iter();
        Some(Self { packets: placed.next()?, xdp: placed.next() })
    }
}

/// A delegation whose descriptors have been dealt with.
#[derive(Debug)]
pub(crate) struct Delegation {
    pub(crate) terms: DelegateT,
    pub(crate) record: Option<SessionRecord>,
    /// Descriptors of the delegation in the bell's socket.
    pub(crate) passed: usize,
}
