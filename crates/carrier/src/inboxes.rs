//! The inboxes that joins name: the carrier's own, and those of programs, to which it only posts.
//!
//! Not here: the sessions of an inbox's slots (`carrier`).

use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{InboxNumber, InboxSlot, InboxT};
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
pub(crate) struct Inboxes(HashMap<InboxNumber, SharedInbox>);

/// An inbox that a join has named.
pub(crate) struct OpenedInbox {
    pub(crate) inbox: Arc<Inbox>,
    /// It was not known before.
    pub(crate) is_new: bool,
}

impl Inboxes {
    /// Returns the inbox that a join names, and counts one use more.
    pub(crate) fn open(&mut self, named: &InboxT) -> Option<OpenedInbox> {
        let number = InboxNumber(named.id);
        if let Some(known) = self.0.get_mut(&number) {
            known.uses += 1;
            return Some(OpenedInbox { inbox: Arc::clone(&known.inbox), is_new: false });
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
        self.0.insert(number, SharedInbox { inbox: Arc::clone(&inbox), descriptors, uses: 1 });
        Some(OpenedInbox { inbox, is_new: true })
    }

    /// Counts one use less; returns the inbox if that was the last.
    pub(crate) fn close(&mut self, id: InboxNumber) -> Option<Arc<Inbox>> {
        let known = self.0.get_mut(&id)?;
        known.uses -= 1;
        if known.uses > 0 {
            return None;
        }
        self.0.remove(&id).map(|known| known.inbox)
    }

    /// Returns the descriptors of a known inbox.
    pub(crate) fn descriptors(&self, id: InboxNumber) -> Option<[Descriptor; 3]> {
        Some(self.0.get(&id)?.descriptors.clone())
    }

    /// Takes the requests for attention in all inboxes, and calls `each` with the slot of each.
    pub(crate) fn take_attention(&self, each: &mut dyn FnMut(InboxSlot)) {
        for (number, known) in &self.0 {
            known
                .inbox
                .take_attention(&mut |slot| each(InboxSlot { inbox: *number, slot: slot.0 }));
        }
    }
}

fn waker() -> Option<OwnedFd> {
    rustix::event::eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
}
