//! Inboxes and their slots.
//!
//! A slot is given out again only after the stream that had it is over for both sides. An inbox
//! goes when its last slot is free; its number is never used again. Not here: the memory of an
//! inbox (`sojourn-stream`).

use rustix::process::Uid;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{InboxNumber, InboxSlot};
use std::collections::HashMap;

/// The owner of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InboxOwner {
    pub(super) process: ClientId,
    /// The user as whom it runs. One that gives up root's rights begins other inboxes: its peers
    /// may have to be kept apart from it now.
    pub(super) user: Uid,
    pub(super) set: u32,
    /// The user of the peers that ring there.
    pub(super) peers_user: Uid,
}

/// The descriptors of an inbox, by role: memory, ready event, attention event.
#[derive(Clone, Debug)]
pub struct InboxDescriptors {
    /// The owner's.
    pub owner: [Descriptor; 3],
    /// Those of its peers.
    pub peer: [Descriptor; 3],
}

/// The users of an inbox: its owner's, and its peers'.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserPair {
    pub(super) user: Uid,
    pub(super) peers: Uid,
}

#[derive(Debug)]
pub(super) struct Inbox {
    owner: InboxOwner,
    pub(super) descriptors: InboxDescriptors,
    /// Slots that were used and are free again.
    free: Vec<u32>,
    /// Slots never used begin here.
    fresh: u32,
}

#[derive(Debug)]
pub(super) struct Inboxes {
    slots: u32,
    by_number: HashMap<InboxNumber, Inbox>,
    /// Inboxes of an owner; more than one when slots ran out.
    by_owner: HashMap<InboxOwner, Vec<InboxNumber>>,
}

impl Inboxes {
    pub(super) fn new(slots: u32) -> Self {
        Self { slots, by_number: HashMap::new(), by_owner: HashMap::new() }
    }

    /// Takes a free slot in one of the owner's inboxes; `None` if all are full.
    pub(super) fn place(&mut self, owner: InboxOwner) -> Option<InboxSlot> {
        for number in self.by_owner.get(&owner)? {
            let Some(inbox) = self.by_number.get_mut(number) else { continue };
            if let Some(slot) = inbox.free.pop() {
                return Some(InboxSlot { inbox: *number, slot });
            }
            if inbox.fresh < self.slots {
                inbox.fresh += 1;
                return Some(InboxSlot { inbox: *number, slot: inbox.fresh - 1 });
            }
        }
        None
    }

    /// Adds an inbox for an owner.
    pub(super) fn add(
        &mut self,
        owner: InboxOwner,
        number: InboxNumber,
        descriptors: InboxDescriptors,
    ) {
        let inbox = Inbox { owner, descriptors, free: Vec::new(), fresh: 0 };
        self.by_number.insert(number, inbox);
        self.by_owner.entry(owner).or_default().push(number);
    }

    pub(super) fn get(&self, number: InboxNumber) -> Option<&Inbox> {
        self.by_number.get(&number)
    }

    /// Returns a slot. If the inbox is gone with it, returns its users.
    pub(super) fn free(
        &mut self,
        InboxSlot { inbox: number, slot }: InboxSlot,
    ) -> Option<UserPair> {
        let inbox = self.by_number.get_mut(&number)?;
        inbox.free.push(slot);
        if inbox.free.len() < inbox.fresh as usize {
            return None;
        }
        let owner = inbox.owner;
        self.by_number.remove(&number);
        if let Some(numbers) = self.by_owner.get_mut(&owner) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
        Some(UserPair { user: owner.user, peers: owner.peers_user })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty() && self.by_owner.is_empty()
    }

    /// Slots in use of an inbox.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.by_number.values().map(|inbox| inbox.fresh as usize - inbox.free.len()).sum()
    }
}
