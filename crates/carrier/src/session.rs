//! A session of the carrier, with the data of each phase of its life.
//!
//! Data that only one phase has stands in that phase. A step takes the session out of the carrier's
//! table, works on it by value, and returns what becomes of it ([`Outcome`]). What may wait for the
//! socket's lock is an assistant's work, and the session a [`Phase::Working`] meanwhile. Not here:
//! the steps (`moves`, `datagrams`).

use crate::fd_name::{FdName, Kept};
use crate::joined::{JoinedEnds, JoinedStream};
use crate::metastate::{Mac, NextHop};
use crate::plan::UdpPlan;
use crate::program_socket::ProgramSocket;
use crate::too_big::PathMtu;
use crate::waiting::{Queued, Waiting};
use crate::work::Work;
use rustix::fd::OwnedFd;
use sojourn_filter::Key;
use sojourn_proto::record::SessionRecord;
use sojourn_proto::time::Instant;
use sojourn_pump::LinkId;
use sojourn_session::{DelegationToken, ProcessId, ReasonT};
use sojourn_stream::Stream;
use sojourn_wire::SocketCookie;
use std::sync::Arc;

/// A session of this carrier.
pub(crate) struct Session {
    pub(crate) key: Key,
    pub(crate) phase: Phase,
}

pub(crate) enum Phase {
    /// The server has not joined it yet.
    Offered { socket: ProgramSocket },
    /// Joined; other sessions of its program move out first.
    Queued(Box<Queued>),
    /// It moves out; the program's side, or the kernel, is not ready yet.
    Waiting(Box<Waiting>),
    /// The program's library runs the engine.
    Delegated(Box<Delegated>),
    /// An assistant works on the socket.
    Working(Box<Working>),
    /// A UDP socket's session that the server has not joined yet.
    UdpOffered(Box<UdpPlan>),
    /// A UDP socket's session that is joined; the program's side is not ready yet.
    UdpWaiting(Box<UdpWaiting>),
    /// A UDP socket's session that the program's library carries.
    UdpDelegated(Box<UdpDelegated>),
}

/// The result of a step.
pub(crate) enum Outcome {
    /// The session stays in its phase, and keeps its timer.
    Stay(Phase),
    /// The session is attended to again at that time; with `None`, only when something happens to
    /// it.
    Look(Phase, Option<Instant>),
    /// An assistant works on the socket; the rest is attended to afterwards.
    Work(Parked, Work),
    /// The session becomes the kernel's again.
    End(Phase),
}

impl Session {
    /// Returns the keys of the rules that the filter has for the session, or may have.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self.plan() {
            Some(plan) => plan.keys.clone(),
            None => vec![self.key],
        }
    }

    /// Returns the plan of a UDP socket's session.
    pub(crate) fn plan(&self) -> Option<&UdpPlan> {
        match &self.phase {
            Phase::UdpOffered(plan) => Some(plan),
            Phase::UdpWaiting(waiting) => Some(&waiting.plan),
            Phase::UdpDelegated(delegated) => Some(&delegated.plan),
            Phase::Offered { .. }
            | Phase::Queued(_)
            | Phase::Waiting(_)
            | Phase::Delegated(_)
            | Phase::Working(_) => None,
        }
    }

    /// Returns the session's stream, once it is joined.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match &self.phase {
            Phase::Queued(queued) => Some(&queued.stream),
            Phase::Waiting(waiting) => Some(&waiting.stream),
            Phase::Delegated(delegated) => Some(&delegated.stream),
            Phase::Working(working) => Some(working.parked.stream()),
            Phase::UdpWaiting(waiting) => Some(&waiting.stream),
            Phase::UdpDelegated(delegated) => Some(&delegated.stream),
            Phase::Offered { .. } | Phase::UdpOffered(_) => None,
        }
    }

    /// Returns true if the session is on its way out of the kernel.
    pub(crate) fn is_moving_out(&self) -> bool {
        match &self.phase {
            Phase::Waiting(_) => true,
            Phase::Working(working) => !matches!(working.parked, Parked::Leaving(_)),
            _ => false,
        }
    }

    /// Returns the reason for which the session was called home.
    pub(crate) fn called_home_for(&self) -> Option<ReasonT> {
        ReasonT::from_number(self.stream()?.ledger().reason())
    }

    /// Returns the two ends that the join has named, once the session is joined.
    pub(crate) fn ends(&self) -> Option<&JoinedEnds> {
        match &self.phase {
            Phase::Queued(queued) => Some(&queued.ends),
            Phase::Waiting(waiting) => Some(&waiting.ends),
            Phase::Delegated(delegated) => Some(&delegated.ends),
            Phase::Working(working) => Some(working.parked.ends()),
            Phase::UdpWaiting(waiting) => Some(&waiting.ends),
            Phase::UdpDelegated(delegated) => Some(&delegated.ends),
            Phase::Offered { .. } | Phase::UdpOffered(_) => None,
        }
    }

    /// Returns true if an earlier server has joined the session, with a program of that number.
    /// Another program may have the number since that one has ended: its own sessions are joined
    /// with its process, by which this server knows it.
    pub(crate) fn is_adopted_from(&self, pid: ProcessId) -> bool {
        self.ends().is_some_and(|ends| ends.peer_pid == pid && ends.peer_process.is_none())
    }

    /// Returns the descriptors that the next server needs, of a session that is away.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match &self.phase {
            Phase::Delegated(delegated) => Some(&delegated.kept),
            Phase::UdpDelegated(delegated) => Some(&delegated.kept),
            _ => None,
        }
    }
}

/// A library's knowledge of a session that it gives back.
pub(crate) struct FinalState {
    pub(crate) record: SessionRecord,
    /// The peer's FIN has come right behind the last byte.
    pub(crate) has_ended: bool,
}

/// A session on whose socket an assistant works.
pub(crate) struct Working {
    pub(crate) parked: Parked,
    pub(crate) asked: Asked,
}

/// The session meanwhile, and what becomes of it.
pub(crate) enum Parked {
    /// It is on its way out, and goes on.
    Nudged(Box<Waiting>),
    /// Its state is read; the keeper has its socket.
    TakenOut(Box<Waiting>, Box<Export>),
    /// The keeper has its state, which is taken out of the socket.
    Released(Box<Waiting>, Box<Export>),
    /// It becomes the kernel's, and the carrier has its socket no more.
    Leaving(Box<Leaving>),
}

/// A session whose state is read out of its socket.
pub(crate) struct Export {
    /// The next hop of its packets.
    pub(crate) next_hop: NextHop,
    /// The file for the record, for the assistant. Until it is sealed the socket has everything.
    pub(crate) file: Arc<OwnedFd>,
    /// The same, for the program.
    pub(crate) sealed: OwnedFd,
    pub(crate) kept: Kept,
}

/// A session that is about to become the kernel's.
pub(crate) struct Leaving {
    pub(crate) stream: Stream,
    pub(crate) ends: JoinedEnds,
    pub(crate) way: Way,
}

/// The way in which a session becomes the kernel's.
pub(crate) enum Way {
    /// It was never taken out.
    GivenUp,
    /// Its state is put back into the socket.
    PutBack {
        /// The name under which the keeper has the session, until its socket has everything.
        fd_name: FdName,
        interface: u32,
        link: LinkId,
        /// Its packets are the kernel's again, and the carrier knows.
        is_heard: bool,
    },
    /// Its program has taken it for reset.
    Lost,
}

/// What was asked for while an assistant worked on the socket.
#[derive(Default)]
pub(crate) struct Asked {
    /// Something may have happened to the session.
    pub(crate) attention: bool,
    /// Next hops or rules may have changed.
    pub(crate) review: bool,
    /// A return, and the reason.
    pub(crate) home: Option<ReasonT>,
    /// The session's end: its program has left it, or is dead.
    pub(crate) end: bool,
}

impl Parked {
    pub(crate) fn stream(&self) -> &Stream {
        match self {
            Self::Nudged(waiting) | Self::TakenOut(waiting, _) | Self::Released(waiting, _) => {
                &waiting.stream
            }
            Self::Leaving(leaving) => &leaving.stream,
        }
    }

    fn ends(&self) -> &JoinedEnds {
        match self {
            Self::Nudged(waiting) | Self::TakenOut(waiting, _) | Self::Released(waiting, _) => {
                &waiting.ends
            }
            Self::Leaving(leaving) => &leaving.ends,
        }
    }
}

/// A session that is away.
pub(crate) struct Delegated {
    pub(crate) socket: ProgramSocket,
    pub(crate) stream: Stream,
    pub(crate) ends: JoinedEnds,
    /// The record with which the session was taken out.
    pub(crate) record: SessionRecord,
    pub(crate) token: DelegationToken,
    /// The next hop that the library was told last.
    pub(crate) next_hop: NextHop,
    pub(crate) path: PathMtu,
    /// The program's name for its packet socket, and the socket's link address if it is a port's.
    pub(crate) link: LinkId,
    pub(crate) port: Option<Mac>,
    /// There is no route for the moment.
    pub(crate) is_cut: bool,
    /// The time at which the carrier first saw that the session is on its way home.
    pub(crate) frozen_at: Option<Instant>,
    /// The socket's cookie (`SO_COOKIE`, socket(7)), by which arrivals name it.
    pub(crate) cookie: SocketCookie,
    pub(crate) kept: Kept,
    /// The library can be told of other next hops. An adopted session's library can, once it has
    /// registered.
    pub(crate) is_known: bool,
    /// Set if the session was adopted on its way home: a library that has not given it back by then
    /// never will.
    pub(crate) home_by: Option<Instant>,
    pub(crate) content: SocketContent,
}

/// The content of the socket of a session that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketContent {
    /// The kernel's state is as old as the record.
    Old,
    /// The socket has everything: the server before this one died while it read the socket.
    Whole,
    /// The socket has everything but bytes that were not sent, and gets the session's packets: the
    /// server before this one died while it put the session back.
    Rebuilt,
}

impl Delegated {
    /// Asks the library to give the session back, for that reason.
    pub(crate) fn call_home(&self, reason: ReasonT) {
        call_home(&self.stream, reason);
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
    /// The keys whose datagrams still go to the library.
    pub(crate) keys: Vec<Key>,
    pub(crate) kept: Kept,
    /// The library can be told things. An adopted session's library can, once it has registered.
    pub(crate) is_known: bool,
    /// The time at which the carrier has seen that the session goes home.
    pub(crate) frozen_at: Option<Instant>,
    /// The library was told that its datagrams are the kernel's again.
    pub(crate) is_told: bool,
    /// Set if the session was adopted on its way home: its library may not be able to say that it
    /// is over.
    pub(crate) home_by: Option<Instant>,
}

impl UdpDelegated {
    /// Asks the library to let go of the session, for that reason.
    pub(crate) fn call_home(&self, reason: ReasonT) {
        call_home(&self.stream, reason);
    }
}

/// Returns true if the library of a UDP socket's session may still send past the kernel: it has
/// claimed the session, and has not withdrawn it.
pub(crate) fn is_sending(stream: &Stream) -> bool {
    let has_withdrawn = stream.peer_flushing().is_some() || stream.peer_flushed().is_some();
    stream.ledger().is_claimed() && !has_withdrawn
}

fn call_home(stream: &Stream, reason: ReasonT) {
    stream.ledger().publish_reason(reason as u32);
    stream.freeze();
    stream.attention();
    stream.notify_peer();
}

/// Makes a number that nobody can guess.
pub(crate) fn token() -> DelegationToken {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    DelegationToken(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd_name::OfDatagrams;
    use rustix::process::PidfdFlags;
    use sojourn_ipc::rt::Descriptor;
    use sojourn_session::{InboxSlot, StreamNumber};
    use sojourn_shm::{Access, NewSegment, Segment};
    use sojourn_stream::{Inbox, Layout, SlotNumber};
    use sojourn_wire::Protocol;
    use std::sync::Arc;

    /// A UDP socket's session on its way out to a process of that number.
    fn joined_with(peer_pid: ProcessId, peer_process: Descriptor) -> Session {
        let [stream, _] = sides();
        let local = "192.0.2.1:7".parse().unwrap();
        let key = Key::new(Protocol::Udp, local, None).unwrap();
        let kind = sojourn_proto::record::Kind::Udp(Default::default());
        let record = SessionRecord { local, remote: None, ip: Default::default(), kind };
        let next_hop = NextHop { interface: 1, name: "lo".into(), link: None, mtu: 0 };
        let (ring_bytes, own) = ([4096; 2], InboxSlot::default());
        let of_it = OfDatagrams { cookie: SocketCookie(1), is_both: false, own };
        let plan = UdpPlan::adopted(record, next_hop, &of_it, &[]);
        let region = Descriptor::NONE;
        let joined = JoinedStream { stream: StreamNumber(1), side: 1, ring_bytes, region };
        let ends = JoinedEnds { own, peer: own, peer_pid, peer_process };
        let waiting = UdpWaiting { stream, joined, ends, plan, since: sojourn_pump::now() };
        Session { key, phase: Phase::UdpWaiting(Box::new(waiting)) }
    }

    /// The end of a program with adopted sessions is heard of later than it happens, and its number
    /// may be another's by then.
    #[test]
    fn who_has_the_number_of_a_program_that_has_ended_keeps_its_own_sessions() {
        let own = ProcessId::own();
        let number = rustix::process::getpid();
        let process = rustix::process::pidfd_open(number, PidfdFlags::empty()).unwrap();
        assert!(joined_with(own, Descriptor::NONE).is_adopted_from(own));
        assert!(!joined_with(ProcessId(own.0 + 1), Descriptor::NONE).is_adopted_from(own));
        assert!(!joined_with(own, process.into()).is_adopted_from(own));
    }

    /// The program's side of a stream, and the carrier's.
    fn sides() -> [Stream; 2] {
        let layout = Layout::new([4096; 2]).unwrap();
        let NewSegment { segment, .. } =
            Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
        let NewSegment { segment: memory, .. } =
            Segment::create("test", Inbox::LEN, Access::ReadWrite).unwrap();
        let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let memory = memory.map(Access::ReadWrite).unwrap();
        let inbox = Arc::new(Inbox::new(memory, event(), event()).unwrap());
        [0, 1].map(|side| {
            let mapping = segment.map(Access::ReadWrite).unwrap();
            Stream::new(mapping, layout, side, Arc::clone(&inbox), SlotNumber(0)).unwrap()
        })
    }

    /// The rules of a port stay until then: what its program sends after that is refused.
    #[test]
    fn a_library_sends_until_it_has_withdrawn_the_session() {
        let [program, carrier] = sides();
        assert!(!is_sending(&carrier));
        assert!(carrier.ledger().take() && !is_sending(&carrier));
        assert!(program.claim() && is_sending(&carrier));
        call_home(&carrier, ReasonT::Firewall);
        assert!(is_sending(&carrier), "the program has not heard of it yet");
        program.set_flushing(0);
        assert!(!is_sending(&carrier));
    }

    #[test]
    fn a_library_that_has_not_claimed_the_session_never_sends() {
        let [program, carrier] = sides();
        assert!(carrier.ledger().take());
        call_home(&carrier, ReasonT::Firewall);
        assert!(!program.claim() && carrier.ledger().revoke() && !is_sending(&carrier));
    }
}
