//! A delegation: a session with another host, or a UDP socket, that the server hands to this
//! process.
//!
//! Not here: receiving it (`control::protocol`), and running its engine (`net`).

use sojourn_proto::record::SessionRecord;
use sojourn_session::LendT;

/// A delegation whose descriptors have been dealt with.
#[derive(Debug)]
pub(crate) struct Delegation {
    pub(crate) terms: LendT,
    pub(crate) record: Option<SessionRecord>,
    /// Descriptors of the delegation in the bell's socket.
    pub(crate) passed: usize,
}
