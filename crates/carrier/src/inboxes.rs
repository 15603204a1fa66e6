//! The inboxes that joins name: the carrier's own, and those of programs, to which it only posts.
//!
//! Not here: the sessions of an inbox's slots (`carrier`).

use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::InboxT;
use sojourn_shm::{Access, Segment};
use sojourn_stream::Inbox;
use std::collections::HashMap;
use std::sync::Arc;

/// One inbox, and the number of sessions that name it.
#[derive(Debug)]
struct SharedInbox {
    inbox: Arc<Inbox>,
    /// Memory, ready event, attention event, as they came.
    descriptors: [Descriptor; 3],
    uses: usize,
}

/// The inboxes that joined sessions name, the carrier's or the programs'. The server counts in the
/// same way: an inbox that is named again after its last use comes with its descriptors again.
#[derive(Debug, Default)]
pub(crate) struct Inboxes(HashMap<u64, SharedInbox>);

impl Inboxes {
    /// Returns the inbox that a join names, and counts one use more. Also returns true if it is
    /// new.
    pub(crate) fn open(&mut self, named: &InboxT) -> Option<(Arc<Inbox>, bool)> {
        if let Some(known) = self.0.get_mut(&named.id) {
            known.uses += 1;
            return Some((Arc::clone(&known.inbox), false));
        }
        let own = |fd: &Descriptor| -> Option<OwnedFd> {
            rustix::io::fcntl_dupfd_cloexec(fd.as_fd()?, 0).ok()
        };
        let segment = Segment::accept(own(&named.memory)?, Inbox::LEN).ok()?;
        let mapping = segment.map(Access::ReadWrite).ok()?;
        let inbox = Inbox::new(mapping, own(&named.ready)?, own(&named.attention)?)?;
        // The carrier's own, of which programs are the peers.
        let inbox = if inbox.is_apart() { inbox.posts_by(waker()?).ok()? } else { inbox };
        let inbox = Arc::new(inbox);
        let descriptors = [&named.memory, &named.ready, &named.attention].map(Descriptor::clone);
        self.0.insert(named.id, SharedInbox { inbox: Arc::clone(&inbox), descriptors, uses: 1 });
        Some((inbox, true))
    }

    /// Counts one use less; returns the inbox if that was the last.
    pub(crate) fn close(&mut self, id: u64) -> Option<Arc<Inbox>> {
        let known = self.0.get_mut(&id)?;
        known.uses -= 1;
        if known.uses > 0 {
            return None;
        }
        self.0.remove(&id).map(|known| known.inbox)
    }

    /// Returns the descriptors of a known inbox.
    pub(crate) fn descriptors(&self, id: u64) -> Option<[Descriptor; 3]> {
        Some(self.0.get(&id)?.descriptors.clone())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Arc<Inbox>)> {
        self.0.iter().map(|(id, known)| (*id, &known.inbox))
    }
}

fn waker() -> Option<OwnedFd> {
    rustix::event::eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
}
