//! The processes, the ends they have offered, and the joined streams: the server's knowledge and
//! its decisions.
//!
//! Pure: it makes no system call. Time is an argument; memory and descriptors come from a
//! [`SharedMemory`] and are only kept and given out. So all of it can be tested without a socket
//! (`tests`, `laws`).
//!
//! # Theory of operation
//! An **end** is one offered or joined session of one process, known by the library's number
//! (`local`) and by its [`Key`], the server's view of the kernel object. A key names one object: a
//! socket by its own cookie and its peer's, which the kernel never gives out again; a pipe by a
//! number that the end itself keeps from being another pipe's ([`crate::pins`]). So an offer that
//! has become stale (its process closed the descriptor and did not say `left`) can never be paired
//! with a later connection of the same addresses, or a pipe of the same number. An offered end
//! pairs with the end that has the mirrored key, if that waits. The server's messages to a process
//! are queued as events, which the process collects. A **stream** is two joined ends; it is
//! forgotten when both sides have left. Only then are its slots used again, so nobody rings a slot
//! that means something else by now.
//!
//! Not here: looking at descriptors (`identity`), counting holders (`holders`), IPC (`service`).

mod adopt;
mod delivery;
mod end;
mod events;
mod inbox;
mod pairing;
mod process;
mod processes;
mod refusals;
mod shares;
mod view;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

pub use delivery::{CarrierMessage, Delivery, InboxOut, JoinOut, Page};
pub use end::{EndId, Identity, StreamSide};
pub use inbox::InboxDescriptors;
pub use process::{ProcessInfo, Program};

use crate::holders::Question;
use crate::key::Key;
use end::End;
use inbox::Inboxes;
use process::Process;
use rustix::process::Uid;
use shares::Shares;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_pump::Counts;
use sojourn_pump::figures::Figures;
use sojourn_session::{HomeT, InboxSlot, Inode, KindT, LocalNumber, ReasonT, StreamNumber};
use sojourn_stream::LayerTimes;
use std::collections::HashMap;

/// The client that stands for the server's own carrier: it offers the other ends of connections to
/// other hosts.
pub const CARRIER: ClientId = ClientId { index: u32::MAX, generation: u32::MAX };

/// The arguments of a library's offer.
#[derive(Clone, Copy, Debug)]
pub struct OfferArguments {
    /// The library's number.
    pub local: LocalNumber,
    /// The number of the epoll set, 0 for none.
    pub set: u32,
    /// Ring bytes wanted for each direction.
    pub ring_bytes: u32,
    /// No other process holds the end.
    pub is_sole: bool,
    /// Where the session is to be while it is away, if its peer is on another host.
    pub home: HomeT,
    /// The end's inode, for administrators; 0 if it has none of its own.
    pub inode: Inode,
}

/// The result of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is decided; an event tells the process.
    Decided,
    /// The peer of the end has not offered yet.
    Waits,
    /// The end's holders must be counted; [`Registry::counted`] goes on, under this number.
    Count(u64),
}

/// An end whose holders must be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToCount {
    /// The end.
    pub end: EndId,
    /// The number for the answer, [`Registry::counted`].
    pub number: u64,
}

/// A caller broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The client has not said hello, or was dropped.
    #[error("no hello from this client, or it was dropped")]
    NoHello,
    /// The caller's user has as many processes here as it may have.
    #[error("no room for another process of that user")]
    Quota,
    /// A number is in use, or a side is impossible.
    #[error("arguments that contradict the rules")]
    Argument,
}

/// Makes the memory and descriptors that two sides share, and reads that memory.
pub trait SharedMemory {
    /// Makes a sealed region for rings of these sizes.
    fn region(&mut self, ring_bytes: [u32; 2]) -> Option<Descriptor>;
    /// Makes an inbox. If the owner `is_apart`, of another user than the peers, neither has
    /// anything by which it could hold up the other.
    fn inbox(&mut self, is_apart: bool) -> Option<InboxDescriptors>;
    /// Returns the bytes written in each direction so far, by the sides' word.
    fn totals(&self, region: &Descriptor) -> [u64; 2];
    /// Returns the traffic of a UDP socket's session that has gone past the kernel, by its
    /// program's word.
    fn counts(&self, region: &Descriptor) -> Counts;
    /// Returns the state of a session with another host, by its program's word, if it gives one.
    fn figures(&self, region: &Descriptor) -> Option<Figures>;
    /// Has the program of a session with another host time its layers until that second of the
    /// monotonic clock (0: no longer), and returns the times so far, by the program's word.
    fn times(&self, region: &Descriptor, until_s: u32) -> Option<LayerTimes>;
}

/// The server's limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Ends that one process may have.
    pub ends: usize,
    /// Ends that all processes may have together; each user has a share (`shares`).
    pub all_ends: usize,
    /// Descriptors that the server may keep; each user has a share.
    pub descriptors: usize,
    /// Pipes that the kernel lets the server watch (`pins`); each user has a share. An end counts
    /// as one, though both ends of a pipe have one watch.
    pub watches: usize,
    /// Sessions with other hosts, each of which is a mapping of the carrier's; each user has a
    /// share.
    pub carried: usize,
    /// The user who may have all of that, like root.
    pub own_user: Uid,
    /// Slots of an inbox.
    pub slots: u32,
    /// Ends of different users may be paired.
    pub serves_everybody: bool,
    /// Two ends of one process may be paired: for tests in which a program talks to itself.
    pub joins_within: bool,
}

/// Uncollected events after which a process must not be late, and after which it is dropped at
/// once.
const EVENTS_SOME: usize = 256;
const EVENTS_MAX: usize = 2 * sojourn_session::ENDS_MAX as usize;
/// The age of the oldest uncollected event from which on a process is late (ms).
const LATE_MS: u64 = 10_000;
/// The smallest ring (bytes).
pub const RING_MIN: u32 = 4 << 10;
/// The largest ring that can be wanted (bytes).
pub const RING_MAX: u32 = 16 << 20;
/// The largest ring that is made, with room for the bytes that the kernel would hold.
const RING_MOST: u32 = 64 << 20;
/// A rate faster than memory (bytes a millisecond): the server does not believe a side that claims
/// more.
const RATE_MAX: u64 = 200_000_000;

/// Two joined ends.
#[derive(Debug)]
struct Stream {
    kind: KindT,
    ring_bytes: [u32; 2],
    /// None if the stream was adopted.
    region: Descriptor,
    /// The process and its number for the session; `None` once the side has left (or has not
    /// adopted yet).
    sides: [Option<EndId>; 2],
    /// Each side's place.
    places: [Option<InboxSlot>; 2],
    /// Each side's user.
    users: [Uid; 2],
    since_ms: u64,
    is_recalled: bool,
}

impl Stream {
    /// Returns the bytes that went each way, by its ends' word.
    fn totals(&self, memory: &dyn SharedMemory) -> [u64; 2] {
        if self.kind == KindT::Udp {
            let counts = memory.counts(&self.region);
            return [counts.sent_bytes, counts.received_bytes];
        }
        memory.totals(&self.region)
    }

    /// Returns a number of bytes that cannot have gone through yet, whatever the ends say.
    fn bytes_max(&self, now_ms: u64) -> u64 {
        let age_ms = now_ms.saturating_sub(self.since_ms).saturating_add(1);
        age_ms.saturating_mul(RATE_MAX)
    }
}

/// Counters since the start.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Offers.
    pub offers: u64,
    /// Streams made.
    pub joins: u64,
    /// Joined ends that left, by reason.
    pub returns: [u64; ReasonT::COUNT],
    /// Offers refused.
    pub refusals: u64,
    /// Looks through the system's processes.
    pub scans: u64,
    /// Bytes through streams that have ended.
    pub bytes: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    processes: HashMap<ClientId, Process>,
    keys: HashMap<Key, EndId>,
    streams: HashMap<StreamNumber, Stream>,
    inboxes: Inboxes,
    /// Streams of each user.
    users: HashMap<Uid, usize>,
    /// Ends of each user, and descriptors that the server keeps for each.
    ends: Shares,
    descriptors: Shares,
    /// Ends of pipes of each user: a pipe takes one of the kernel's watches.
    pipes: Shares,
    /// Sessions with other hosts of each user.
    carried: Shares,
    /// The last number given out, for streams, inboxes and counts.
    last: u64,
    to_ring: Vec<ClientId>,
    to_drop: Vec<ClientId>,
    to_count: Vec<ToCount>,
    counters: Counters,
}

impl Registry {
    /// Makes a registry without processes. Numbers begin above `seed`, a random number, so that
    /// those of an earlier server do not come again.
    #[must_use]
    pub fn new(limits: Limits, seed: u32) -> Self {
        Self {
            limits,
            processes: HashMap::new(),
            keys: HashMap::new(),
            streams: HashMap::new(),
            inboxes: Inboxes::new(limits.slots),
            users: HashMap::new(),
            ends: Shares::new(limits.all_ends, limits.own_user),
            descriptors: Shares::new(limits.descriptors, limits.own_user),
            pipes: Shares::new(limits.watches, limits.own_user),
            carried: Shares::new(limits.carried, limits.own_user),
            last: (u64::from(seed) | 1) << 31,
            to_ring: Vec::new(),
            to_drop: Vec::new(),
            to_count: Vec::new(),
            counters: Counters {
                offers: 0,
                joins: 0,
                returns: [0; ReasonT::COUNT],
                refusals: 0,
                scans: 0,
                bytes: 0,
            },
        }
    }

    fn fresh(&mut self) -> u64 {
        loop {
            self.last += 1;
            // Adopted streams keep the numbers that an earlier server has given them.
            if !self.streams.contains_key(&StreamNumber(self.last)) {
                return self.last;
            }
        }
    }

    fn end(&self, id: EndId) -> Option<&End> {
        self.processes.get(&id.process)?.ends.get(&id.local)
    }

    fn end_mut(&mut self, id: EndId) -> Option<&mut End> {
        self.processes.get_mut(&id.process)?.ends.get_mut(&id.local)
    }

    /// Forgets an end in any state; the caller takes care of its stream, if it has one.
    fn take_end(&mut self, id: EndId) -> Option<End> {
        let owner = self.processes.get_mut(&id.process)?;
        let end = owner.ends.remove(&id.local)?;
        let user = owner.info.uid;
        self.count_end(id.process, user, end.identity.key, false);
        self.keys.remove(&end.identity.key);
        Some(end)
    }

    /// Returns true if a process may have one more end, which has that key.
    fn may_have_end(&self, process: ClientId, key: Key) -> bool {
        let Some(Process { info, ends, .. }) = self.processes.get(&process) else { return false };
        let is_share = |shares: &Shares| process == CARRIER || shares.may_take(info.uid, 1);
        let is_pipe_share = !key.is_pipe() || is_share(&self.pipes);
        let is_carried_share = !key.is_carried() || is_share(&self.carried);
        let is_room = ends.len() < self.limits.ends && is_share(&self.ends);
        is_room && is_pipe_share && is_carried_share
    }

    /// Counts an end for its user, or takes it off.
    fn count_end(&mut self, process: ClientId, user: Uid, key: Key, is_more: bool) {
        if process == CARRIER {
            return;
        }
        let count = if is_more { Shares::take } else { Shares::give_back };
        count(&mut self.ends, user, 1);
        count(&mut self.pipes, user, usize::from(key.is_pipe()));
        count(&mut self.carried, user, usize::from(key.is_carried()));
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts the programs.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.processes.len() - usize::from(self.processes.contains_key(&CARRIER))
    }

    /// Counts the streams.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Counts one more look through the system's processes.
    pub fn count_scan(&mut self) {
        self.counters.scans += 1;
    }

    /// Takes the ends whose holders must be counted, beside those that [`Registry::offer`] has
    /// answered with [`Offered::Count`].
    pub fn take_counts(&mut self) -> Vec<ToCount> {
        core::mem::take(&mut self.to_count)
    }

    /// Returns the question about the holders of an end.
    #[must_use]
    pub fn question(&self, id: EndId) -> Option<Question> {
        let object = self.end(id)?.identity.object;
        Some(Question { pid: self.processes.get(&id.process)?.info.pid, object })
    }

    /// Takes the processes whose doorbells are to be rung.
    pub fn take_rings(&mut self) -> Vec<ClientId> {
        core::mem::take(&mut self.to_ring)
    }

    /// Takes the processes that do not collect their events: they are to be disconnected and then
    /// reported [gone](Self::gone).
    pub fn take_unresponsive(&mut self, now_ms: u64) -> Vec<ClientId> {
        for (id, process) in &self.processes {
            let first = process.events.front().map_or(now_ms, |first| first.at_ms);
            if process.events.len() > EVENTS_SOME && now_ms.saturating_sub(first) > LATE_MS {
                self.to_drop.push(*id);
            }
        }
        core::mem::take(&mut self.to_drop)
    }

    /// Returns true if a user has processes here.
    #[must_use]
    pub fn has_user(&self, uid: Uid) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|(id, process)| *id != CARRIER && process.info.uid == uid)
    }

    /// Returns true if a process has events to collect, so that a look for late ones is worth
    /// while.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.processes.values().any(|process| !process.events.is_empty())
    }
}
