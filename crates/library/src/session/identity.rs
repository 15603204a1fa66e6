//! The names of a session within its process: the use of its slot, and its place in an inbox.
//!
//! Not here: the server's and the protocol server's names of it (`session::Facts`,
//! `session::service`).

use crate::fds::slot::Slot;
use sojourn_pump::SessionNumber;
use sojourn_stream::{Inbox, SlotNumber};
use std::sync::Arc;

/// One use of a session's slot. The slot of a session that has ended is used again, so whoever
/// remembers a session remembers its generation, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(pub(super) u32);

/// The pump of this process knows a session by its slot.
impl From<Slot> for SessionNumber {
    fn from(slot: Slot) -> Self {
        Self::new(slot.number())
    }
}

/// A session's place in the inbox that its peer posts to.
#[derive(Clone, Debug)]
pub(crate) struct InboxPlace {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) slot: SlotNumber,
}

impl InboxPlace {
    /// Posts for the session, as its peer would.
    pub(crate) fn post(&self) {
        self.inbox.post_own(self.slot);
    }
}
