//! The carrier's thread: which sessions there are, when each is taken out of the kernel and lent to
//! its program, and put back.
//!
//! # Theory of operation
//! A session comes as a duplicate of its socket (`Gate`). The carrier offers its other end, and the
//! server joins it with the program's. It then waits until the program's side has given up the
//! kernel in both directions and nothing is on its way, turns the packets away from the kernel,
//! reads out of the socket where the connection stands, and lends the session to the program's
//! library, which carries it with an engine of its own. The library gives it back when it goes
//! home, for whatever reason; if its process dies, the session goes on from what the ledger and the
//! rings tell.
//!
//! No packet and no byte of a session passes here. The thread sleeps until something happens. Read
//! `docs/understand/moves.md`.

use crate::conntrack::Conntrack;
use crate::datagrams::{Lodger, Plan};
use crate::fragments::Fragments;
use crate::inboxes::Inboxes;
use crate::keeping::{Keeping, Label};
use crate::links::{Links, Ticket};
use crate::metastate::{Mac, Metastate, Way};
use crate::moves::{hop_of, is_cut, way_of};
use crate::paths::Paths;
use crate::returned::Returned;
use crate::rules::Rules;
use crate::sessions::{Gate, Sessions};
use crate::too_big::Path;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_ipc::rt::Descriptor;
use sojourn_proto::record::{SessionRecord, TcpTuning};
use sojourn_proto::time::Instant;
use sojourn_pump::{now, position};
use sojourn_session::HopT;
use sojourn_stream::Stream;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

const EVENTS: usize = 32;
/// How often it is looked at a session that was adopted on its way home (microseconds).
const HOME_EVERY_US: u64 = 500_000;

/// What an event is about.
const GATE: u64 = 0;
pub(crate) const INBOX: u64 = 1;
const CHANGES: u64 = 2;
const RULES: u64 = 4;
pub(crate) const ROUTERS: u64 = 3;
/// A program of an earlier server's session; its number is in the lower half.
pub(crate) const PROGRAM: u64 = 1 << 32;

/// The thread cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct StartError(&'static str, Errno);

/// A session of this carrier.
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) phase: Phase,
    /// What a UDP socket's session is to have; `None` for TCP.
    pub(crate) plan: Option<Box<Plan>>,
    /// Once it is joined.
    pub(crate) place: Option<Place>,
    /// Its place among those to be looked at.
    due: Option<Instant>,
}

impl Entry {
    pub(crate) fn offered(key: Key, socket: OwnedFd) -> Self {
        Self { key, phase: Phase::Offered { socket }, plan: None, place: None, due: None }
    }

    pub(crate) fn planned(key: Key, plan: Plan) -> Self {
        let plan = Some(Box::new(plan));
        Self { key, phase: Phase::Between, plan, place: None, due: None }
    }

    pub(crate) fn adopted(key: Key, phase: Phase, plan: Option<Box<Plan>>, place: Place) -> Self {
        Self { key, phase, plan, place: Some(place), due: None }
    }

    /// What the filter has for it, or may have.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match &self.plan {
            Some(plan) => plan.keys.clone(),
            None => vec![self.key],
        }
    }

    /// Of a session that is away: what the next server needs of it.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match &self.phase {
            Phase::Lent(lent) => Some(&lent.kept),
            Phase::Datagrams(lodger) => Some(&lodger.kept),
            _ => None,
        }
    }
}

pub(crate) enum Phase {
    /// The server has not joined it yet.
    Offered { socket: OwnedFd },
    /// Joined; the program's side, or the kernel, is not ready yet.
    Waiting(Box<Waiting>),
    /// The program's library carries it.
    Lent(Box<Lent>),
    /// A UDP socket's; joined; the program's side is not ready yet.
    Expected { stream: Box<Stream>, joined: Joined, since: Instant },
    /// A UDP socket's; the program's library carries it.
    Datagrams(Box<Lodger>),
    /// On its way from one to another.
    Between,
}

/// What only the next server may need of a join.
#[derive(Clone)]
pub(crate) struct Joined {
    pub(crate) stream: u64,
    pub(crate) side: u8,
    pub(crate) ring_bytes: [u32; 2],
    pub(crate) region: Descriptor,
}

/// What the next server may need of a session, beside its socket and its record.
pub(crate) struct Kept {
    pub(crate) label: Label,
    pub(crate) region: Descriptor,
    /// Memory, ready, attention of the program's; and of the carrier's, if it is a UDP socket's
    /// session.
    pub(crate) inbox: [Descriptor; 3],
    pub(crate) own: Option<[Descriptor; 3]>,
}

impl Kept {
    /// What a keeper holds of a session, in that order: socket (of TCP), record, region, the
    /// program's inbox, the carrier's (of UDP).
    pub(crate) fn fds<'k>(
        &'k self,
        socket: Option<&'k OwnedFd>,
        record: BorrowedFd<'k>,
    ) -> Option<Vec<BorrowedFd<'k>>> {
        let region = self.region.as_fd()?;
        let inboxes = self.inbox.iter().chain(self.own.iter().flatten());
        let inboxes = inboxes.map(|fd| fd.as_fd()).collect::<Option<Vec<_>>>()?;
        let socket = socket.map(AsFd::as_fd);
        Some(socket.into_iter().chain([record, region]).chain(inboxes).collect())
    }
}

/// A session on its way out.
pub(crate) struct Waiting {
    pub(crate) socket: OwnedFd,
    pub(crate) stream: Stream,
    pub(crate) joined: Joined,
    pub(crate) since: Instant,
    /// What will be in its record.
    pub(crate) tuning: TcpTuning,
    /// Since when its packets are turned away from the kernel, and to whom, if they are.
    pub(crate) turned: Option<Turned>,
}

/// What [`Waiting::turned`] says.
pub(crate) struct Turned {
    pub(crate) ticket: Ticket,
    pub(crate) way: Way,
    pub(crate) since: Instant,
}

/// A session that is away.
pub(crate) struct Lent {
    pub(crate) socket: OwnedFd,
    pub(crate) stream: Stream,
    /// As it was when it was taken out.
    pub(crate) record: SessionRecord,
    pub(crate) token: u64,
    /// As its library was told it last.
    pub(crate) way: Way,
    pub(crate) path: Path,
    /// What its program knows its packet socket by, and the socket's link address if it is a
    /// port's.
    pub(crate) link: u64,
    pub(crate) port: Option<Mac>,
    /// There is no route for the moment.
    pub(crate) is_cut: bool,
    /// See `Carrier::look_for_slipped`.
    pub(crate) next_look_us: u64,
    pub(crate) kept: Kept,
    /// Its library can be told of other ways: of an adopted session, once it has registered.
    pub(crate) is_known: bool,
    /// It was adopted on its way home: if its library has not given it back by then, it never will.
    pub(crate) home_by: Option<Instant>,
}

impl Lent {
    /// Its library is to give it back.
    pub(crate) fn call_home(&self) {
        self.stream.freeze();
        self.stream.attention();
        self.stream.ring_peer();
    }
}

/// What a join has named.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) own_inbox: u64,
    pub(crate) own_slot: u32,
    pub(crate) peer_inbox: u64,
    pub(crate) peer_slot: u32,
    pub(crate) peer_pid: u32,
    pub(crate) peer_process: Descriptor,
}

/// The carrier.
pub struct Carrier {
    pub(crate) sessions: Box<dyn Sessions>,
    pub(crate) gate: Gate,
    pub(crate) set: OwnedFd,
    pub(crate) metastate: Metastate,
    /// If this kernel has one.
    pub(crate) conntrack: Option<Conntrack>,
    /// Of packet filters and IPsec; `None`: they are ignored.
    pub(crate) rules: Option<Rules>,
    pub(crate) links: Links,
    /// By the number that the carrier gave.
    pub(crate) entries: HashMap<u64, Entry>,
    /// Those that are lent, by token.
    pub(crate) tokens: HashMap<u64, u64>,
    /// Those that are lent, by what is in their packets.
    pub(crate) flows: HashMap<Key, u64>,
    pub(crate) paths: Paths,
    /// Those of which fragments have come.
    fragments: Fragments,
    /// Those that were put back a moment ago.
    pub(crate) returned: Returned,
    /// Those that are joined, by inbox and slot.
    pub(crate) slots: HashMap<(u64, u32), u64>,
    pub(crate) inboxes: Inboxes,
    pub(crate) peer_inboxes: Inboxes,
    due: BTreeSet<(Instant, u64)>,
    pub(crate) last_local: u64,
    /// Programs of sessions of an earlier server, by their numbers.
    pub(crate) programs: HashMap<u32, OwnedFd>,
    /// The server ends.
    pub(crate) is_leaving: bool,
}

pub(crate) fn later(at: Instant, us: u64) -> Instant {
    Instant::from_micros(at.as_micros() + us)
}

impl Carrier {
    /// A carrier in the network namespace of the calling thread. It carries what an earlier server
    /// has left with the keeper at this path, and leaves there what it carries itself; without a
    /// path nothing outlives it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(
        sessions: Box<dyn Sessions>,
        gate: Gate,
        keeper: Option<PathBuf>,
    ) -> Result<Self, StartError> {
        let at = |step| move |error| StartError(step, error);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(at("epoll"))?;
        let metastate = Metastate::new().map_err(at("rtnetlink"))?;
        let links = Links::new(Keeping::at(keeper), sessions.has_rings());
        let rules = sessions.respects_firewalls().then(|| Rules::new(now()));
        let mut carrier = Self {
            sessions,
            gate,
            set,
            metastate,
            conntrack: Conntrack::new(),
            rules,
            links,
            entries: HashMap::new(),
            tokens: HashMap::new(),
            flows: HashMap::new(),
            paths: Paths::default(),
            fragments: Fragments::default(),
            returned: Returned::default(),
            slots: HashMap::new(),
            inboxes: Inboxes::default(),
            peer_inboxes: Inboxes::default(),
            due: BTreeSet::new(),
            last_local: 0,
            programs: HashMap::new(),
            is_leaving: false,
        };
        carrier.watch(carrier.gate.bell(), GATE).map_err(at("epoll"))?;
        carrier.watch(carrier.metastate.changes_fd(), CHANGES).map_err(at("epoll"))?;
        for fd in carrier.rules.iter().flat_map(|rules| rules.firewall.changes_fds()) {
            carrier.watch(fd, RULES).map_err(at("epoll"))?;
        }
        carrier.adopt_all();
        Ok(carrier)
    }

    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
        epoll::add(&self.set, fd, EventData::new_u64(data), EventFlags::IN)
    }

    /// Carries until the server is gone.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.gate.is_closed() {
            if self.links.keeping.take_loss() {
                self.keep_anew();
            }
            self.gate.tell_count(self.entries.len());
            self.listen();
            let at = now();
            let idle = self.links.tidy(at);
            let look = self.take_fragmented(at);
            let old = self.take_old_paths(at);
            let survey = self.survey_rules(at);
            let due = self.due.first().map(|(when, _)| *when);
            let next = [idle, look, old, survey, due].into_iter().flatten().min();
            let limit = next.map(|when| when.since(at).as_micros()).map(|us| Timespec {
                tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
                tv_nsec: (us % 1_000_000 * 1000) as i64,
            });
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An error leaves it empty.
            self.sessions.at_work(false);
            let _ = epoll::wait(&self.set, spare, limit.as_ref());
            self.sessions.at_work(true);
            for event in &events {
                match event.data.u64() {
                    GATE => self.take_from_gate(),
                    INBOX => self.take_attention(),
                    CHANGES => self.changed(),
                    RULES => self.look_at_rules(),
                    ROUTERS => self.hear_routers(),
                    program => self.program_ended(program as u32),
                }
            }
            self.take_due();
        }
    }

    /// Sends sessions home whose segments come in fragments, which only the kernel puts together.
    /// When to look again.
    fn take_fragmented(&mut self, at: Instant) -> Option<Instant> {
        let (fragmented, next) = self.links.take_fragmented(at);
        for entry in self.entries.values().filter(|entry| fragmented.contains(&entry.key)) {
            if let Phase::Lent(lent) = &entry.phase {
                let next = position::received_up_to(&lent.stream.ledger().told());
                if self.fragments.are_real(&entry.key, next, at) {
                    lent.call_home();
                }
            }
        }
        next
    }

    /// Sessions of which the other side wants to be looked at.
    fn take_attention(&mut self) {
        let mut found = Vec::new();
        for (id, inbox) in self.inboxes.all() {
            inbox.take_attention(&mut |slot| found.extend(self.slots.get(&(id, slot)).copied()));
        }
        found.into_iter().for_each(|local| self.attend(local));
    }

    fn take_due(&mut self) {
        let at = now();
        while let Some(&(first, local)) = self.due.first().filter(|(first, _)| *first <= at) {
            self.due.remove(&(first, local));
            if let Some(entry) = self.entries.get_mut(&local) {
                entry.due = None;
            }
            self.attend(local);
        }
    }

    /// Looks at a session again then.
    pub(crate) fn look_at(&mut self, local: u64, when: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(&local) else { return };
        if let Some(before) = entry.due.take() {
            self.due.remove(&(before, local));
        }
        if let Some(when) = when {
            entry.due = Some(when);
            self.due.insert((when, local));
        }
    }

    /// Something may have happened to a session.
    pub(crate) fn attend(&mut self, local: u64) {
        let Some(entry) = self.entries.get(&local) else { return };
        match &entry.phase {
            Phase::Offered { .. } | Phase::Between => {}
            Phase::Waiting(_) => self.try_take(local),
            // Frozen before the library has taken it up: it never will. Else the library gives it
            // back.
            Phase::Lent(lent) if lent.stream.is_frozen() && lent.stream.ledger().revoke() => {
                self.end(local);
            }
            // It has waited for us in vain.
            Phase::Lent(lent) if lent.stream.is_frozen() && lent.stream.ledger().is_lost() => {
                self.end(local);
            }
            Phase::Lent(lent) if lent.stream.is_frozen() && lent.home_by.is_some() => {
                let at = now();
                match lent.home_by <= Some(at) {
                    true => self.end(local),
                    false => self.look_at(local, Some(later(at, HOME_EVERY_US))),
                }
            }
            Phase::Lent(_) => self.look_for_slipped(local),
            Phase::Expected { .. } => self.try_take_datagrams(local),
            Phase::Datagrams(_) => self.attend_datagrams(local),
        }
    }

    /// The kernel knows other ways.
    fn changed(&mut self) {
        if !self.metastate.has_changed() {
            return;
        }
        self.links.refresh();
        for local in self.entries.keys().copied().collect::<Vec<_>>() {
            self.look_at_way(local);
        }
    }

    /// A session may have another way now.
    pub(crate) fn look_at_way(&mut self, local: u64) {
        let Self { entries, metastate, sessions, .. } = self;
        let Some(entry) = entries.get_mut(&local) else { return };
        if let Phase::Datagrams(lodger) = &entry.phase {
            // Its library asks for each way anew.
            return sessions.reroute(local, hop_of(&lodger.way, lodger.kept.label.port));
        }
        let Entry { key, phase: Phase::Lent(lent), .. } = entry else {
            return;
        };
        if !lent.is_known {
            return;
        }
        if is_cut(metastate, key) {
            lent.is_cut = true;
            sessions.reroute(local, HopT { is_cut: true, ..hop_of(&lent.way, lent.port) });
            return;
        }
        let mut way = way_of(metastate, key);
        if let Some(way) = &mut way {
            way.mtu = lent.path.narrowed(way.mtu);
        }
        match way {
            Some(way) if way == lent.way && !lent.is_cut => {}
            Some(way) if lent.way.interface == way.interface => {
                lent.is_cut = false;
                sessions.reroute(local, hop_of(&way, lent.port));
                lent.way = way;
            }
            // By another interface, or not at all for the moment: the kernel knows what to do.
            _ => lent.call_home(),
        }
    }
}
