//! Who is there, what they have offered, what is joined: the server's knowledge and its decisions.
//!
//! Pure: it makes no system call. Time is an argument; memory and descriptors come from a [`Maker`]
//! and are only kept and given out. So all of it can be tested without a socket (`tests`, `laws`).
//!
//! # Theory of operation
//! An **end** is one offered or joined session of one process, known by the library's number
//! (`local`) and by its [`Key`], what the server saw of the kernel object. A key names one object:
//! a socket by its cookie and its peer's, which the kernel never gives out again; a pipe by what
//! the end itself keeps it by ([`crate::pins`]). So an offer that has become stale (its process
//! closed the descriptor and did not say `left`) can never be paired with a later connection of the
//! same addresses, or a pipe of the same number. An end that is offered pairs with the end that has
//! the mirrored key, if that waits. What the server has to say is queued as events, which a process
//! collects. A **stream** is two joined ends; it is forgotten when both sides have left. Only then
//! are its slots used again, so nobody rings a slot that means something else by now.
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
mod shares;
mod view;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

pub use delivery::{Carried, Delivery, InboxOut, JoinOut};
pub use end::Identity;
pub use process::Who;

use crate::holders::Object;
use crate::key::Key;
use end::End;
use inbox::Inboxes;
use process::Process;
use shares::Shares;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Descriptor;
use sojourn_pump::Counts;
use sojourn_pump::figures::Figures;
use sojourn_session::{KindT, ReasonT};
use std::collections::HashMap;

/// The client that is the server's own carrier: it offers the other ends of connections to other
/// hosts.
pub const CARRIER: ClientId = ClientId { index: u32::MAX, generation: u32::MAX };

/// What a library says along with an offer.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The library's number.
    pub local: u64,
    /// Which set, 0 for none.
    pub set: u32,
    /// Ring bytes wanted for each direction.
    pub ring_bytes: u32,
    /// Nobody else holds the end.
    pub is_sole: bool,
    /// The end's inode, for administrators; 0 if it has none of its own.
    pub inode: u64,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// An event says.
    Decided,
    /// Its peer has not offered yet.
    Waits,
    /// Its holders must be counted; [`Registry::counted`] goes on, under this number.
    Count(u64),
}

/// A caller broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Not a process that said hello, or one that was dropped.
    #[error("no hello from this client, or it was dropped")]
    NoHello,
    /// The caller's user has as many processes here as it may have.
    #[error("no room for another process of that user")]
    Quota,
    /// A number in use, a side that cannot be.
    #[error("arguments that contradict the rules")]
    Argument,
}

/// Makes what two sides share.
pub trait Maker {
    /// A sealed region for rings of these sizes.
    fn region(&mut self, ring_bytes: [u32; 2]) -> Option<Descriptor>;
    /// An inbox: memory, ready, attention.
    fn inbox(&mut self) -> Option<[Descriptor; 3]>;
    /// Bytes written in each direction so far, as the sides say.
    fn totals(&self, region: &Descriptor) -> [u64; 2];
    /// What has gone past the kernel of a UDP socket's session, as its program tells.
    fn counts(&self, region: &Descriptor) -> Counts;
    /// How a session with another host is, as its program tells, if it does.
    fn figures(&self, region: &Descriptor) -> Option<Figures>;
}

/// What the server allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Ends one process may have.
    pub ends: usize,
    /// Ends that all processes may have, each user its share: see `shares`.
    pub all_ends: usize,
    /// Descriptors that there may be, each user its share.
    pub descriptors: usize,
    /// The user who may have all of that, as root may.
    pub own_user: u32,
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
/// How late (ms).
const LATE_MS: u64 = 10_000;
/// The smallest ring (bytes).
pub const RING_MIN: u32 = 4 << 10;
/// The largest ring that can be wanted (bytes).
pub const RING_MAX: u32 = 16 << 20;
/// The largest one that is made, with what the kernel would hold.
const RING_MOST: u32 = 64 << 20;
/// Faster than memory (bytes a millisecond): what a side says to have written beyond that is not
/// believed.
const RATE_MAX: u64 = 200_000_000;

/// Two joined ends.
#[derive(Debug)]
struct Stream {
    kind: KindT,
    ring_bytes: [u32; 2],
    /// None if it was adopted.
    region: Descriptor,
    /// Process and its number for the session; `None` once it has left (or has not adopted yet).
    sides: [Option<(ClientId, u64)>; 2],
    /// Each side's place: inbox and slot.
    places: [Option<(u64, u32)>; 2],
    /// Each side's user.
    users: [u32; 2],
    since_ms: u64,
    is_recalled: bool,
}

impl Stream {
    /// Bytes that went each way, as its ends tell.
    fn totals(&self, maker: &dyn Maker) -> [u64; 2] {
        if self.kind == KindT::Udp {
            let counts = maker.counts(&self.region);
            return [counts.sent_bytes, counts.received_bytes];
        }
        maker.totals(&self.region)
    }

    /// More bytes cannot have gone through by now.
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
    keys: HashMap<Key, (ClientId, u64)>,
    streams: HashMap<u64, Stream>,
    inboxes: Inboxes,
    /// Streams of each user.
    users: HashMap<u32, usize>,
    /// Ends of each user, and descriptors that are kept for it.
    ends: Shares,
    descriptors: Shares,
    /// Numbers of streams, inboxes and counts are given out from here.
    last: u64,
    to_ring: Vec<ClientId>,
    to_drop: Vec<ClientId>,
    to_count: Vec<(ClientId, u64, u64)>,
    counters: Counters,
}

impl Registry {
    /// Nobody there. Numbers begin above `seed`, a random one, so that those of a server that was
    /// here before do not come again.
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
            // Adopted streams have numbers of a server before this one.
            if !self.streams.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    fn end(&self, process: ClientId, local: u64) -> Option<&End> {
        self.processes.get(&process)?.ends.get(&local)
    }

    fn end_mut(&mut self, process: ClientId, local: u64) -> Option<&mut End> {
        self.processes.get_mut(&process)?.ends.get_mut(&local)
    }

    /// Forgets an end, whatever its state; its stream, if any, is the caller's to care for.
    fn take_end(&mut self, process: ClientId, local: u64) -> Option<End> {
        let owner = self.processes.get_mut(&process)?;
        let end = owner.ends.remove(&local)?;
        if process != CARRIER {
            self.ends.give_back(owner.who.uid, 1);
        }
        self.keys.remove(&end.identity.key);
        Some(end)
    }

    /// Counters, and how many processes and streams there are.
    #[must_use]
    pub fn counters(&self) -> (&Counters, usize, usize) {
        let carriers = usize::from(self.processes.contains_key(&CARRIER));
        (&self.counters, self.processes.len() - carriers, self.streams.len())
    }

    /// One more look through the system's processes.
    pub fn count_scan(&mut self) {
        self.counters.scans += 1;
    }

    /// Ends whose holders must be counted as well, beside what [`Registry::offer`] answers: of
    /// which process, by which number of the library's, under which number.
    pub fn take_counts(&mut self) -> Vec<(ClientId, u64, u64)> {
        core::mem::take(&mut self.to_count)
    }

    /// How the holders of an end are found, and whose it is.
    #[must_use]
    pub fn object(&self, process: ClientId, local: u64) -> Option<(u32, Object)> {
        let object = self.end(process, local)?.identity.object;
        Some((self.processes.get(&process)?.who.pid, object))
    }

    /// Processes whose doorbells are to be rung.
    pub fn take_rings(&mut self) -> Vec<ClientId> {
        core::mem::take(&mut self.to_ring)
    }

    /// Processes that do not collect their events: to be disconnected and then said to be
    /// [gone](Self::gone).
    pub fn take_late(&mut self, now_ms: u64) -> Vec<ClientId> {
        for (id, process) in &self.processes {
            let first = process.events.front().map_or(now_ms, |(_, at_ms)| *at_ms);
            if process.events.len() > EVENTS_SOME && now_ms.saturating_sub(first) > LATE_MS {
                self.to_drop.push(*id);
            }
        }
        core::mem::take(&mut self.to_drop)
    }

    /// Whether a user has processes here.
    #[must_use]
    pub fn has_user(&self, uid: u32) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|(id, process)| *id != CARRIER && process.who.uid == uid)
    }

    /// Whether anybody has events to collect, so that it is worth while to look who is late.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.processes.values().any(|process| !process.events.is_empty())
    }
}
