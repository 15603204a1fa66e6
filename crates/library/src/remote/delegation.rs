//! What the server delegates to this process: a session with another host, or a UDP socket.
//!
//! Its descriptors have been dealt with. Not here: receiving it (`protocol`), carrying it (`net`).

use sojourn_proto::record::SessionRecord;
use sojourn_session::LendT;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Delegation {
    pub(crate) terms: LendT,
    pub(crate) record: Option<SessionRecord>,
    /// Descriptors that are in the bell's socket.
    pub(crate) passed: usize,
}
