//! A session of the carrier: what is known of it in each phase of its life.
//!
//! Data that only one phase has stands in that phase. Who takes a session a step further takes it
//! out of the carrier's table, works on it by value, and says what becomes of it ([`Outcome`]). Not
//! here: the steps (`moves`, `datagrams`).

use crate::label::Kept;
use crate::links::Ticket;
use crate::metastate::{Mac, NextHop};
use crate::plan::UdpPlan;
use crate::too_big::PathMtu;
use rustix::fd::OwnedFd;
use sojourn_filter::Key;
use sojourn_ipc::rt::Descriptor;
use sojourn_proto::record::{SessionRecord, TcpTuning};
use sojourn_proto::time::Instant;
use sojourn_stream::Stream;

/// A session of this carrier.
pub(crate) struct Session {
    pub(crate) key: Key,
    pub(crate) phase: Phase,
}

pub(crate) enum Phase {
    /// The server has not joined it yet.
    Offered { socket: OwnedFd },
    /// Joined; the program's side, or the kernel, is not ready yet.
    Waiting(Box<Waiting>),
    /// The program's library carries it.
    Delegated(Box<Delegated>),
    /// A UDP socket's; the server has not joined it yet.
    UdpOffered(Box<UdpPlan>),
    /// A UDP socket's; joined; the program's side is not ready yet.
    UdpWaiting(Box<UdpWaiting>),
    /// A UDP socket's; the program's library carries it.
    UdpDelegated(Box<UdpDelegated>),
}

/// What becomes of a session that was looked at.
pub(crate) enum Outcome {
    /// It stays so until something happens to it, or until it was to be looked at anyhow.
    Stay(Phase),
    /// It is looked at again then; with `None` only when something happens to it.
    Look(Phase, Option<Instant>),
    /// It is the kernel's again.
    End(Phase),
}

impl Session {
    /// What the filter has for it, or may have.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self.plan() {
            Some(plan) => plan.keys.clone(),
            None => vec![self.key],
        }
    }

    /// What it is to have, if it is a UDP socket's.
    pub(crate) fn plan(&self) -> Option<&UdpPlan> {
        match &self.phase {
            Phase::UdpOffered(plan) => Some(plan),
            Phase::UdpWaiting(waiting) => Some(&waiting.plan),
            Phase::UdpDelegated(delegated) => Some(&delegated.plan),
            Phase::Offered { .. } | Phase::Waiting(_) | Phase::Delegated(_) => None,
        }
    }

    /// What its join has named, once it is joined.
    pub(crate) fn ends(&self) -> Option<&JoinedEnds> {
        match &self.phase {
            Phase::Waiting(waiting) => Some(&waiting.ends),
            Phase::Delegated(delegated) => Some(&delegated.ends),
            Phase::UdpWaiting(waiting) => Some(&waiting.ends),
            Phase::UdpDelegated(delegated) => Some(&delegated.ends),
            Phase::Offered { .. } | Phase::UdpOffered(_) => None,
        }
    }

    /// Of a session that is away: what the next server needs of it.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match &self.phase {
            Phase::Delegated(delegated) => Some(&delegated.kept),
            Phase::UdpDelegated(delegated) => Some(&delegated.kept),
            _ => None,
        }
    }
}

/// What a library knew of a session that it gives back.
pub(crate) struct Known {
    pub(crate) record: SessionRecord,
    /// The peer's FIN has come right behind the last byte.
    pub(crate) has_ended: bool,
}

/// What only the next server may need of a join.
#[derive(Clone)]
pub(crate) struct JoinedStream {
    pub(crate) stream: u64,
    pub(crate) side: u8,
    pub(crate) ring_bytes: [u32; 2],
    pub(crate) region: Descriptor,
}

/// The two ends that a join has named: where each is told of the other, and whose the peer's is.
#[derive(Clone)]
pub(crate) struct JoinedEnds {
    pub(crate) own_inbox: u64,
    pub(crate) own_slot: u32,
    pub(crate) peer_inbox: u64,
    pub(crate) peer_slot: u32,
    pub(crate) peer_pid: u32,
    pub(crate) peer_process: Descriptor,
}

/// A session on its way out.
pub(crate) struct Waiting {
    pub(crate) socket: OwnedFd,
    pub(crate) stream: Stream,
    pub(crate) joined: JoinedStream,
    pub(crate) ends: JoinedEnds,
    pub(crate) since: Instant,
    /// What will be in its record.
    pub(crate) tuning: TcpTuning,
    /// Since when its packets are turned away from the kernel, and to whom, if they are.
    pub(crate) turned: Option<Turned>,
}

/// What [`Waiting::turned`] says.
pub(crate) struct Turned {
    pub(crate) ticket: Ticket,
    pub(crate) next_hop: NextHop,
    pub(crate) since: Instant,
}

/// A session that is away.
pub(crate) struct Delegated {
    pub(crate) socket: OwnedFd,
    pub(crate) stream: Stream,
    pub(crate) ends: JoinedEnds,
    /// As it was when it was taken out.
    pub(crate) record: SessionRecord,
    pub(crate) token: u64,
    /// As its library was told it last.
    pub(crate) next_hop: NextHop,
    pub(crate) path: PathMtu,
    /// What its program knows its packet socket by, and the socket's link address if it is a
    /// port's.
    pub(crate) link: u64,
    pub(crate) port: Option<Mac>,
    /// There is no route for the moment.
    pub(crate) is_cut: bool,
    /// See `Carrier::look_for_slipped`.
    pub(crate) next_look_us: u64,
    pub(crate) kept: Kept,
    /// Its library can be told of other next hops: of an adopted session, once it has registered.
    pub(crate) is_known: bool,
    /// It was adopted on its way home: if its library has not given it back by then, it never will.
    pub(crate) home_by: Option<Instant>,
}

impl Delegated {
    /// Its library is to give it back.
    pub(crate) fn call_home(&self) {
        call_home(&self.stream);
    }
}

/// A UDP socket's session on its way out.
pub(crate) struct UdpWaiting {
    pub(crate) stream: Stream,
    pub(crate) joined: JoinedStream,
    pub(crate) ends: JoinedEnds,
    pub(crate) plan: UdpPlan,
    pub(crate) since: Instant,
}

/// A UDP socket's session that is away.
pub(crate) struct UdpDelegated {
    pub(crate) stream: Stream,
    pub(crate) ends: JoinedEnds,
    pub(crate) plan: UdpPlan,
    pub(crate) next_hop: NextHop,
    /// Those that are the library's still.
    pub(crate) keys: Vec<Key>,
    pub(crate) kept: Kept,
    /// Its library can be told things: of an adopted session, once it has registered.
    pub(crate) is_known: bool,
    /// Its library was told that its datagrams are the kernel's.
    pub(crate) is_told: bool,
    /// It was adopted on its way home: its library may not be able to say that it is over.
    pub(crate) home_by: Option<Instant>,
}

impl UdpDelegated {
    /// Its library is to let go of it.
    pub(crate) fn call_home(&self) {
        call_home(&self.stream);
    }
}

fn call_home(stream: &Stream) {
    stream.freeze();
    stream.attention();
    stream.notify_peer();
}

/// A number that nobody can guess.
pub(crate) fn token() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}
