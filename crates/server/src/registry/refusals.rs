//! The reasons for which the ends of one process stay in the kernel, for administrators.
//!
//! Each end is remembered with its last reason. A process with more ends than are remembered loses
//! the oldest reasons. Not here: the deciding (`pairing`), and lists (`view`).

use sojourn_session::{Inode, ReasonT};
use std::collections::{BTreeMap, HashMap};

/// The number of refusals that are remembered of each process, whatever its user has beside it.
pub(super) const OF_PROCESS_MIN: usize = 256;
/// The same if its user has fewer than [`OF_USER_MAX`]. Ends that have been closed count, of which
/// the server does not hear.
pub(super) const OF_PROCESS_MAX: usize = 4096;
/// The number of refusals of all processes of a user from which on no process gets more than it
/// has: some hundred bytes each.
pub(super) const OF_USER_MAX: usize = 1 << 16;

/// A refusal that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) inode: Inode,
    pub(super) reason: ReasonT,
    pub(super) since_ms: u64,
    /// Its place in lists.
    pub(super) serial: u64,
    /// Bytes a second in the kernel and away, by its program's word, if it was refused for those.
    pub(super) rates: [u64; 2],
}

/// The last refusals and returns of a process, each inode once.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// By serial number: the oldest first.
    all: BTreeMap<u64, Refused>,
    serials: HashMap<Inode, u64>,
}

impl Refusals {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the refusals, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Refused> {
        self.all.values()
    }

    /// Returns the reason of an end.
    pub(super) fn reason(&self, inode: Inode) -> Option<ReasonT> {
        let serial = self.serials.get(&inode)?;
        Some(self.all.get(serial)?.reason)
    }

    /// Forgets the refusal of an end.
    pub(super) fn forget(&mut self, inode: Inode) {
        if let Some(serial) = self.serials.remove(&inode) {
            self.all.remove(&serial);
        }
    }

    /// Remembers a refusal in place of an earlier one of the same end; forgets the oldest ones
    /// where there are more than `most` then.
    pub(super) fn note(&mut self, refused: Refused, most: usize) {
        self.forget(refused.inode);
        self.serials.insert(refused.inode, refused.serial);
        self.all.insert(refused.serial, refused);
        while self.all.len() > most
            && let Some((_, oldest)) = self.all.pop_first()
        {
            self.serials.remove(&oldest.inode);
        }
    }

    /// Remembers the rates that were measured of an end.
    pub(super) fn note_rates(&mut self, inode: Inode, rates: [u64; 2]) {
        let serial = self.serials.get(&inode);
        if let Some(refused) = serial.and_then(|serial| self.all.get_mut(serial)) {
            refused.rates = rates;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(inode: u64, serial: u64) -> Refused {
        let (inode, reason) = (Inode(inode), ReasonT::Slower);
        Refused { inode, reason, since_ms: 0, serial, rates: [0; 2] }
    }

    #[test]
    fn an_end_has_its_last_reason_and_the_oldest_ends_are_forgotten() {
        let mut refusals = Refusals::default();
        for serial in 0..5 {
            refusals.note(refused(serial % 4, serial), 3);
        }
        let inodes: Vec<u64> = refusals.iter().map(|one| one.inode.0).collect();
        assert_eq!(inodes, [2, 3, 0], "the oldest first");
        assert_eq!(refusals.serials.len(), 3);
        assert_eq!(refusals.reason(Inode(1)), None);
        assert_eq!(refusals.reason(Inode(2)), Some(ReasonT::Slower));
        refusals.forget(Inode(2));
        refusals.note_rates(Inode(2), [1, 2]);
        refusals.note_rates(Inode(3), [3, 4]);
        assert_eq!(refusals.iter().next().unwrap().rates, [3, 4]);
        assert_eq!(refusals.len(), 2);
    }
}
