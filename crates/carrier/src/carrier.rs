//! The carrier's thread: which sessions there are, when each is taken out and put back, and what is to be done next.
//!
//! # Theory of operation
//! A session comes as a duplicate of its socket (`Gate`). The carrier offers its other end, and the server joins it with
//! the program's. It then waits until the program's side has given up the kernel in both directions and nothing is on its
//! way, turns the packets away from the kernel, and takes the session out of its socket (`carried`). It goes home
//! when the program's side freezes the stream, when the peer closes, and when anything happens that is not plain data.
//!
//! One thread does everything, in rounds: packets in, what programs have rung for, timers, packets out. While there is
//! something to do it looks again at once; after a while without it sleeps. Read `docs/moves.md`.

use crate::carried::{Carried, Ending, parse};
use crate::inboxes::Inboxes;
use crate::links::{Link, Links};
use crate::metastate::{Metastate, Way};
use crate::moves::{is_cut, way_of};
use crate::sessions::{Gate, Sessions};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sojourn_filter::Key;
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::Instant;
use sojourn_stream::Stream;
use sojourn_wire::FlowKey;
use std::collections::{BTreeSet, HashMap};

/// Frames taken from one interface in a round.
const BUDGET: usize = 64;
/// How long the thread looks for more before it sleeps (microseconds): about what waking it costs.
const SPIN_US: u64 = 50;
/// While it is busy it looks so often for what does not come in packets or bits (rounds).
const EVENTS_EVERY: u32 = 16;
const EVENTS: usize = 32;

/// What an event is about.
const GATE: u64 = 0;
pub(crate) const LINK: u64 = 1;
pub(crate) const INBOX: u64 = 2;
const CHANGES: u64 = 3;

/// The thread cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct StartError(&'static str, Errno);

/// A session of this carrier.
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) phase: Phase,
    /// Once it is joined.
    pub(crate) place: Option<Place>,
    /// Once it is away.
    pub(crate) way: Option<Way>,
    /// Its place among the timers.
    timer: Option<Instant>,
}

impl Entry {
    pub(crate) fn offered(key: Key, socket: OwnedFd) -> Self {
        Self { key, phase: Phase::Offered { socket }, place: None, way: None, timer: None }
    }
}

pub(crate) enum Phase {
    /// The server has not joined it yet.
    Offered { socket: OwnedFd },
    /// Joined; the program's side, or the kernel, is not ready yet.
    Waiting { socket: OwnedFd, stream: Box<Stream>, since: Instant },
    /// Carried here.
    Away(Box<Carried>),
    /// On its way from one to another.
    Between,
}

/// What a join has named.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) own_inbox: u64,
    pub(crate) own_slot: u32,
    pub(crate) peer_inbox: u64,
}

/// The carrier.
pub struct Carrier {
    pub(crate) sessions: Box<dyn Sessions>,
    pub(crate) gate: Gate,
    pub(crate) set: OwnedFd,
    pub(crate) metastate: Metastate,
    pub(crate) links: Links,
    pub(crate) limits: Limits,
    /// By the number that the carrier gave.
    pub(crate) entries: HashMap<u64, Entry>,
    /// Those that are away, by what their own frames say.
    pub(crate) flows: HashMap<FlowKey, u64>,
    /// Those that are joined, by inbox and slot.
    pub(crate) slots: HashMap<(u64, u32), u64>,
    pub(crate) inboxes: Inboxes,
    pub(crate) peer_inboxes: Inboxes,
    timers: BTreeSet<(Instant, u64)>,
    pub(crate) last_local: u64,
    /// Sessions in which something has happened in this round.
    pub(crate) dirty: Vec<u64>,
    pub(crate) endings: Vec<(u64, Ending)>,
    /// Room for what the set reports.
    events: Vec<epoll::Event>,
}

pub(crate) fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Instant::from_micros(seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000)
}

pub(crate) fn later(at: Instant, us: u64) -> Instant {
    Instant::from_micros(at.as_micros() + us)
}

impl Carrier {
    /// A carrier that carries nothing yet, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(sessions: Box<dyn Sessions>, gate: Gate) -> Result<Self, StartError> {
        let at = |step| move |error| StartError(step, error);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(at("epoll"))?;
        let metastate = Metastate::new().map_err(at("rtnetlink"))?;
        let carrier = Self {
            sessions,
            gate,
            set,
            metastate,
            links: Links::default(),
            limits: Limits::default(),
            entries: HashMap::new(),
            flows: HashMap::new(),
            slots: HashMap::new(),
            inboxes: Inboxes::default(),
            peer_inboxes: Inboxes::default(),
            timers: BTreeSet::new(),
            last_local: 0,
            dirty: Vec::new(),
            endings: Vec::new(),
            events: Vec::with_capacity(EVENTS),
        };
        carrier.watch(carrier.gate.bell(), GATE).map_err(at("epoll"))?;
        carrier.watch(carrier.metastate.changes_fd(), CHANGES).map_err(at("epoll"))?;
        Ok(carrier)
    }

    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
        epoll::add(&self.set, fd, EventData::new_u64(data), EventFlags::IN)
    }

    /// Carries until the server is gone.
    pub fn run(mut self) {
        let mut busy_until = now();
        let mut rounds = 0u32;
        while !self.gate.is_closed() {
            let at = now();
            if self.round(at) {
                busy_until = later(at, SPIN_US);
            }
            rounds = rounds.wrapping_add(1);
            if at >= busy_until {
                self.sleep(at);
            } else if rounds.is_multiple_of(EVENTS_EVERY) {
                self.take_events(Some(0));
            } else {
                core::hint::spin_loop();
            }
        }
    }

    /// One round; whether anything has happened.
    fn round(&mut self, at: Instant) -> bool {
        let arrived = self.take_packets(at);
        let rung = self.take_rings();
        let expired = self.take_timers(at);
        let mut dirty = core::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for local in dirty.drain(..) {
            self.pump(local, at);
        }
        if self.dirty.is_empty() {
            // Its memory.
            self.dirty = dirty;
        }
        for (local, _) in core::mem::take(&mut self.endings) {
            self.end(local, at);
        }
        for link in self.links.all() {
            let _ = link.packets.flush();
        }
        arrived || rung || expired || !self.dirty.is_empty()
    }

    fn take_packets(&mut self, at: Instant) -> bool {
        let Self { links, flows, entries, dirty, endings, .. } = self;
        let mut any = false;
        for link in links.all() {
            let kind = link.packets.properties().link;
            let mut accept = |received: sojourn_netif::Received<'_>| {
                let Some(frame) = parse(&received, kind) else { return };
                let Some(local) = flows.get(&frame.key.reversed()) else { return };
                let Some(Entry { phase: Phase::Away(carried), .. }) = entries.get_mut(local) else {
                    return;
                };
                let size = received.vnet.segments.map_or(0, |segments| segments.size);
                dirty.push(*local);
                if let Err(ending) = carried.arrived(&frame, size, at) {
                    endings.push((*local, ending));
                }
            };
            any |= link.packets.receive(BUDGET, &mut accept).is_ok_and(|count| count > 0);
        }
        any
    }

    /// What programs have rung for.
    fn take_rings(&mut self) -> bool {
        let Self { inboxes, slots, dirty, .. } = self;
        let before = dirty.len();
        for (id, inbox) in inboxes.all() {
            if inbox.has_ready() {
                inbox.take_ready(&mut |slot| dirty.extend(slots.get(&(id, slot)).copied()));
            }
        }
        dirty.len() > before
    }

    fn take_timers(&mut self, at: Instant) -> bool {
        let mut any = false;
        while let Some(&(first, local)) = self.timers.first().filter(|(first, _)| *first <= at) {
            self.timers.remove(&(first, local));
            any = true;
            if let Some(entry) = self.entries.get_mut(&local) {
                entry.timer = None;
                if let Phase::Away(carried) = &mut entry.phase {
                    carried.timeout(at);
                }
                self.dirty.push(local);
            }
        }
        any
    }

    pub(crate) fn set_timer(&mut self, local: u64, when: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(&local) else { return };
        if entry.timer == when {
            return;
        }
        if let Some(before) = entry.timer.take() {
            self.timers.remove(&(before, local));
        }
        if let Some(when) = when {
            entry.timer = Some(when);
            self.timers.insert((when, local));
        }
    }

    /// Does what there is to do for one session.
    fn pump(&mut self, local: u64, at: Instant) {
        let Some(entry) = self.entries.get_mut(&local) else { return };
        match &mut entry.phase {
            Phase::Offered { .. } | Phase::Between => {}
            Phase::Waiting { .. } => self.try_take(local, at),
            Phase::Away(carried) => {
                let interface = entry.way.as_ref().map_or(0, |way| way.interface);
                let Some(link) = self.links.link(interface) else { return };
                match carried.pump(&mut *link.packets, at) {
                    Ok(()) => {
                        let when = carried.next_timeout();
                        self.set_timer(local, when);
                    }
                    Err(ending) => self.endings.push((local, ending)),
                }
            }
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, at: Instant) {
        self.inboxes.all().for_each(|(_, inbox)| inbox.announce());
        let has_ready = self.inboxes.all().any(|(_, inbox)| inbox.has_ready());
        let next = self.timers.first().map(|(when, _)| when.since(at).as_micros());
        self.take_events(if has_ready { Some(0) } else { next });
        self.inboxes.all().for_each(|(_, inbox)| inbox.withdraw());
    }

    /// What the thread's set knows, after at most so many microseconds.
    fn take_events(&mut self, limit_us: Option<u64>) {
        let limit = limit_us.map(|us| Timespec {
            tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: (us % 1_000_000 * 1000) as i64,
        });
        let mut events = core::mem::take(&mut self.events);
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        // An error leaves it empty.
        let _ = epoll::wait(&self.set, spare, limit.as_ref());
        for event in &events {
            match event.data.u64() {
                GATE => self.take_from_gate(),
                INBOX => self.take_attention(),
                CHANGES => self.changed(),
                // A round looks there anyway.
                _ => {}
            }
        }
        self.events = events;
    }

    /// Sessions of which the other side wants to be looked at; and the bells that have brought us here are quiet again.
    fn take_attention(&mut self) {
        let Self { inboxes, slots, dirty, .. } = self;
        for (id, inbox) in inboxes.all() {
            inbox.take_attention(&mut |slot| dirty.extend(slots.get(&(id, slot)).copied()));
            inbox.clear_event();
        }
    }

    /// The kernel knows other ways.
    fn changed(&mut self) {
        if !self.metastate.has_changed() {
            return;
        }
        self.links.all().for_each(Link::refresh);
        let at = now();
        let Self { entries, metastate, endings, .. } = self;
        for (local, entry) in entries {
            let Phase::Away(carried) = &mut entry.phase else { continue };
            if is_cut(metastate, &entry.key) {
                carried.cut();
                continue;
            }
            match way_of(metastate, &entry.key) {
                Some(way) if Some(&way) == entry.way.as_ref() && carried.is_cut() => {
                    carried.rerouted(&way, at);
                }
                Some(way) if Some(&way) == entry.way.as_ref() => {}
                Some(way) if entry.way.as_ref().is_some_and(|w| w.interface == way.interface) => {
                    carried.rerouted(&way, at);
                    entry.way = Some(way);
                }
                // By another interface, or not at all for the moment: the kernel knows what to do.
                _ => endings.push((*local, Ending::Unusual)),
            }
        }
    }
}
