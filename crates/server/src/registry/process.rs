//! A process: its credentials, its ends, and the events that it has not collected yet.
//!
//! Not here: its coming and its end (`processes`).

use super::delivery::Event;
use super::end::End;
use super::refusals::Refusals;
use rustix::process::Uid;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_session::{InboxNumber, LocalNumber, ProcessId};
use std::collections::{HashMap, VecDeque};

/// The credentials of a process. Number, user and group are the kernel's word.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    /// Process number; 0 if the server cannot see the process.
    pub pid: ProcessId,
    /// User.
    pub uid: Uid,
    /// Its own word, for people.
    pub program: String,
    /// A descriptor that is readable when the process ends.
    pub process: Descriptor,
    /// The event that is rung when there are events to collect.
    pub doorbell: Descriptor,
}

/// The role of an inbox for a process that knows it.
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

/// An inbox in the role in which a process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KnownInbox {
    pub(super) number: InboxNumber,
    pub(super) role: Role,
}

/// An event that a process has not collected yet.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    pub(super) event: Event,
    /// The time at which it was queued (ms).
    pub(super) at_ms: u64,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) info: ProcessInfo,
    /// Its ends, by the library's number.
    pub(super) ends: HashMap<LocalNumber, End>,
    /// Its events.
    pub(super) events: VecDeque<QueuedEvent>,
    /// It was rung and has not yet seen the end of the queue.
    pub(super) is_rung: bool,
    /// The number of its collected joins that name an inbox in a role: while there are any, it has
    /// the inbox in that role. An inbox has both roles if both ends of a stream are this process's.
    pub(super) inboxes_known: HashMap<KnownInbox, u32>,
    /// It has shown that it may have packets.
    pub(super) has_packets: bool,
    /// It is a protocol server: its sessions have home `server`.
    pub(super) is_protocol_server: bool,
    /// The last refusals and returns, for administrators.
    pub(super) refused: Refusals,
}

/// A process at the other side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The process.
    pub client: ClientId,
    /// It has shown that it may have packets.
    pub has_packets: bool,
}
