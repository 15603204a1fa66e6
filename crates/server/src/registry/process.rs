//! A process: who it is, what it holds, what it has not collected yet.
//!
//! Not here: its coming and its end (`processes`).

use super::delivery::Event;
use super::end::End;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::ReasonT;
use std::collections::{HashMap, VecDeque};

/// Who a process is. Number, user and group are the kernel's word.
#[derive(Clone, Debug)]
pub struct Who {
    /// Process number; 0 if it cannot be seen from here.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Its own word, for people.
    pub program: String,
    /// Readable when it ends.
    pub process: Descriptor,
    /// What is rung for events.
    pub doorbell: Descriptor,
}

/// What an inbox is to a process that knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// It sleeps there.
    Own,
    /// It rings there.
    Peer,
}

impl Role {
    pub(super) fn of(is_own: bool) -> Self {
        if is_own { Self::Own } else { Self::Peer }
    }
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) who: Who,
    /// By the library's number.
    pub(super) ends: HashMap<u64, End>,
    /// Events and when they were queued.
    pub(super) events: VecDeque<(Event, u64)>,
    /// It was rung and has not yet seen the end of the queue.
    pub(super) is_rung: bool,
    /// How many of its collected joins name an inbox in a role: while there are any, it has the
    /// inbox in that role. An inbox has both roles where both ends of a stream are this process's.
    pub(super) inboxes_known: HashMap<(u64, Role), u32>,
    /// It has shown that it may have packets.
    pub(super) has_packets: bool,
    /// What was refused or went home last, for administrators; the oldest first, each inode once.
    pub(super) refused: VecDeque<Refused>,
}

/// A refusal that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) inode: u64,
    pub(super) reason: ReasonT,
    pub(super) since_ms: u64,
    /// Where it stands in lists.
    pub(super) serial: u64,
    /// Bytes a second in the kernel and away, as its program says, if it was refused for those.
    pub(super) rates: [u64; 2],
}

/// So many are remembered of each process.
const REFUSED_MAX: usize = 256;

impl Process {
    /// An end is offered anew.
    pub(super) fn forget_refusal(&mut self, inode: u64) {
        self.refused.retain(|refused| refused.inode != inode);
    }

    pub(super) fn note_refusal(&mut self, refused: Refused) {
        self.forget_refusal(refused.inode);
        if self.refused.len() >= REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(refused);
    }

    /// What was measured of the end that was refused last.
    pub(super) fn note_rates(&mut self, inode: u64, rates: [u64; 2]) {
        if let Some(last) = self.refused.back_mut().filter(|last| last.inode == inode) {
            last.rates = rates;
        }
    }
}
