//! All carried sessions of a process and the interfaces that their frames use, turned round by
//! round.
//!
//! The owner's lock admits one thread at a time, and no call waits. Not here: one session
//! (`carried`), and one look at the interfaces (`round`). Read the head of the crate first.

mod datagrams;

use crate::aggregate::Aggregate;
use crate::carried::{Carried, Ending};
use crate::datagrams::Sockets;
use crate::driven::{DrivenSession, DrivenSessions, Flows, Timer, Timers};
use crate::in_transit::{InTransit, Unclaimed};
use crate::link_hop::{LinkHop, LinkId};
use crate::placement::Placement;
use crate::round::{Round, Tables};
use crate::session_number::SessionNumber;
use sojourn_netif::{Interface, LinkError};
use sojourn_proto::record::SessionRecord;
use sojourn_proto::time::Instant;
use sojourn_wire::FlowKey;
use std::collections::{BTreeSet, HashMap};

/// Frames taken from one interface in a round, at most.
const BUDGET: usize = 64;

/// Rounds that [`Pump::take_all`] makes at most.
const LATE_ROUNDS: usize = 64;
/// How long segments that may wait do wait while calls look (microseconds): the program's answer,
/// or its next write, comes sooner or not soon.
const MOMENT_US: u64 = 10;

/// One look in so many is a turn: at the rate of a call that waits, once in half a microsecond.
const LOOKS_PER_TURN: u32 = 16;

/// How long an interface without sessions is kept for the next one (microseconds): longer than the
/// server keeps its own end of it.
const LINGER_US: u64 = 10_000_000;

/// The largest datagram (bytes).
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

pub(crate) struct AttachedInterface {
    pub(crate) id: LinkId,
    pub(crate) packets: Box<dyn Interface + Send>,
    pub(crate) sessions: usize,
    /// The time at which the last session left.
    idle_since: Instant,
    /// The interface does not exist any more, and its sessions have been given up.
    is_gone: bool,
}

/// All carried sessions of a process. The owner gives the sessions their numbers.
pub struct Pump {
    pub(crate) links: Vec<AttachedInterface>,
    /// The UDP sockets.
    pub(crate) sockets: Sockets,
    entries: DrivenSessions,
    flows: Flows,
    /// Segments for sessions that are on their way here, or home.
    unclaimed: Unclaimed,
    timers: Timers,
    /// Sessions to which something has happened.
    dirty: Vec<SessionNumber>,
    /// Sessions that have left something to be sent in a moment.
    postponed: Vec<SessionNumber>,
    /// The time since which `postponed` is not empty.
    postponed_since: Instant,
    /// Looks since the last one that was a turn in any case.
    looks: u32,
    /// Times of a session's layers were wanted when it was served last: packets are stamped.
    is_timed: bool,
    /// A session with a timed message whose segment the packet interface has.
    timed: Option<SessionNumber>,
    /// Whether TCP sessions do better in the kernel, all together; `None`: that is not measured.
    aggregate: Option<Aggregate>,
    /// Memory in which a datagram of many parts is gathered.
    pub(crate) scratch: Box<[u8]>,
}

impl AttachedInterface {
    fn idle_until(&self) -> Instant {
        Instant::from_micros(self.idle_since.as_micros() + LINGER_US)
    }
}

impl core::fmt::Debug for Pump {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pump").field("sessions", &self.entries.len()).finish_non_exhaustive()
    }
}

/// Returns the time by which sessions count: that of `CLOCK_MONOTONIC`.
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Instant::from_micros(seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000)
}

impl Default for Pump {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            sockets: Sockets::default(),
            entries: HashMap::default(),
            flows: HashMap::default(),
            unclaimed: Unclaimed::default(),
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            postponed: Vec::new(),
            postponed_since: Instant::from_micros(0),
            looks: 0,
            is_timed: false,
            timed: None,
            aggregate: None,
            scratch: vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice(),
        }
    }
}

impl Pump {
    /// Returns true if there is an interface of that name.
    pub fn has_link(&self, id: LinkId) -> bool {
        self.links.iter().any(|link| link.id == id && !link.is_gone)
    }

    /// Has the pump measure its sessions together.
    pub fn measure_together(&mut self) {
        self.aggregate = Some(Aggregate::default());
    }

    /// Returns the measurement of all sessions together, if there is one.
    pub fn aggregate(&mut self) -> Option<&mut Aggregate> {
        self.aggregate.as_mut()
    }

    /// Adds an interface.
    pub fn add_link(&mut self, id: LinkId, packets: Box<dyn Interface + Send>, at: Instant) {
        let link = AttachedInterface { id, packets, sessions: 0, idle_since: at, is_gone: false };
        self.links.push(link);
    }

    /// Takes out an interface that no session has used for a while, or that does not exist any
    /// more; the caller drops it.
    pub fn take_idle_link(&mut self, at: Instant) -> Option<Box<dyn Interface + Send>> {
        let is_over = |link: &AttachedInterface| {
            link.sessions == 0 && (link.is_gone || at >= link.idle_until())
        };
        let found = self.links.iter().position(is_over)?;
        Some(self.links.swap_remove(found).packets)
    }

    /// Returns the time at which the next interface will be idle for that long.
    pub fn next_idle_link(&self) -> Option<Instant> {
        self.links.iter().filter(|link| link.sessions == 0).map(AttachedInterface::idle_until).min()
    }

    /// Gives up the sessions of interfaces that do not exist any more: the program's library sends
    /// them home, where the kernel may know another way.
    #[cold]
    fn give_up_gone(&mut self, gone: LinkId) {
        for entry in self.entries.values_mut().filter(|entry| entry.link == gone) {
            entry.is_ending = true;
            entry.carried.give_up();
        }
        self.sockets.give_up(gone);
    }

    /// Adds a session, under a number that no other has. It gets first the segments that came while
    /// it was on its way here.
    pub fn insert(&mut self, number: SessionNumber, link: LinkId, carried: Carried, at: Instant) {
        let flow = carried.flow();
        let early = self.unclaimed.take(&flow, at);
        self.flows.insert(flow, number);
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            link.sessions += 1;
        }
        let mut entry = DrivenSession {
            carried,
            link,
            flow,
            due: None,
            timer: None,
            is_dirty: false,
            is_postponed: false,
            is_ending: false,
        };
        if let Some(early) = early {
            early.for_each(|frame, size| entry.arrived(frame, size, None, at));
        }
        self.entries.insert(number, entry);
        // The program may have written bytes before, and early segments are to be answered.
        self.mark(number);
    }

    /// Resets a session that nobody can go on with: tells its peer that the connection is over. The
    /// session was removed from that interface, and has left with `record`.
    pub fn reset(
        &mut self,
        link: LinkId,
        carried: &mut Carried,
        record: &SessionRecord,
        at: Instant,
    ) {
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            carried.reset(record, &mut *link.packets, at);
        }
    }

    /// Takes the segments that have come for a session since it was removed; its packets are the
    /// kernel's again. `flow` is that of the session's own frames.
    pub fn take_in_transit(&mut self, flow: &FlowKey, at: Instant) -> Option<InTransit> {
        // Segments from before the packets went back to the kernel may still wait in the interface.
        self.take_all(at);
        self.unclaimed.take(flow, at)
    }

    /// Takes in all frames that have arrived, in several rounds if need be.
    pub(crate) fn take_all(&mut self, at: Instant) {
        for _ in 0..LATE_ROUNDS {
            if !self.receive(None, at) {
                break;
            }
        }
        self.serve(false, at);
    }

    /// Removes a session, after acknowledging what has come. Segments that still come for it are
    /// kept for [`Pump::take_in_transit`].
    pub fn remove(&mut self, number: SessionNumber, at: Instant) -> Option<Carried> {
        let mut entry = self.entries.remove(&number)?;
        if let Some(link) = self.links.iter_mut().find(|link| link.id == entry.link) {
            entry.carried.acknowledge(&mut *link.packets, at);
        }
        // The timer may stand at an earlier time than `due`: see `DrivenSession::set_timer`.
        if let Some(when) = entry.timer {
            self.timers.remove(&Timer { when, number });
        }
        self.flows.remove(&entry.flow);
        self.leave_link(entry.link, at);
        Some(entry.carried)
    }

    /// Counts one session less on an interface.
    pub(crate) fn leave_link(&mut self, id: LinkId, at: Instant) {
        if let Some(link) = self.links.iter_mut().find(|link| link.id == id) {
            link.sessions -= 1;
            link.idle_since = at;
        }
    }

    /// Notes that something has happened to a session: bytes were written, or room was made.
    pub fn mark(&mut self, number: SessionNumber) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.mark(number, &mut self.dirty);
        }
    }

    /// Returns a session, for questions and changes; after a change the caller [marks](Self::mark)
    /// it.
    pub fn session(&mut self, number: SessionNumber) -> Option<&mut Carried> {
        self.entries.get_mut(&number).map(|entry| &mut entry.carried)
    }

    /// Takes over a new way to a session's peer.
    pub fn reroute(&mut self, number: SessionNumber, hop: &LinkHop, at: Instant) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.carried.rerouted(hop, at);
            self.mark(number);
        }
    }

    /// Takes in arrived frames, and does all work that is due. `may_wait`: another turn follows in
    /// a moment. Segments that earlier turns have left are sent once they have waited for
    /// `MOMENT_US`, or if this turn may leave nothing. Returns true if frames were taken.
    pub fn turn(&mut self, may_wait: bool, at: Instant) -> bool {
        self.turn_for(None, may_wait, at)
    }

    /// Turns the pump like [`Pump::turn`], for a call that wants bytes of its session in its own
    /// buffer.
    pub fn turn_for(
        &mut self,
        placement: Option<&mut Placement<'_>>,
        may_wait: bool,
        at: Instant,
    ) -> bool {
        let arrived = self.receive(placement, at);
        self.expire(at);
        if !self.postponed.is_empty()
            && (!may_wait || at.since(self.postponed_since).as_micros() >= MOMENT_US)
        {
            self.serve_postponed(at);
        }
        self.serve(may_wait, at);
        arrived
    }

    /// Sends what was left for later, unless it has gone with something else since.
    fn serve_postponed(&mut self, at: Instant) {
        let mut postponed = core::mem::take(&mut self.postponed);
        for number in postponed.drain(..) {
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            entry.is_postponed = false;
            if entry.carried.is_postponed() {
                self.serve_one(number, false, at);
            }
        }
        // Nothing was added meanwhile, because `serve_one` was not allowed to postpone.
        self.postponed = postponed;
    }

    /// Returns true if a turn would find nothing, as far as that shows without the clock. Now and
    /// then it returns false in any case, so that somebody looks at the clock.
    #[inline]
    pub fn is_quiet(&mut self) -> bool {
        self.looks = (self.looks + 1) % LOOKS_PER_TURN;
        self.looks != 0
            && self.dirty.is_empty()
            && self.postponed.is_empty()
            && self.links.iter().all(|link| link.packets.has_nothing())
    }

    /// Returns the time of the next timer. The timer may have been put off: then a turn finds
    /// nothing.
    pub fn next_timeout(&self) -> Option<Instant> {
        let first = self.timers.first().map(|timer| timer.when);
        [first, self.sockets.next_beat()].into_iter().flatten().min()
    }

    fn receive(&mut self, placement: Option<&mut Placement<'_>>, at: Instant) -> bool {
        let Self { links, flows, entries, dirty, sockets, unclaimed, .. } = self;
        let is_timed = self.is_timed;
        let (mut any, mut gone) = (false, Vec::new());
        let tables = Tables { flows, entries, dirty, sockets: &mut *sockets, unclaimed };
        let mut round = Round::new(tables, placement, at);
        round.is_timed = is_timed;
        for link in links {
            round.link = link.packets.properties().link;
            match link.packets.receive_to(BUDGET, &mut round) {
                Ok(count) => any |= count > 0,
                Err(LinkError::Gone) if !link.is_gone => {
                    link.is_gone = true;
                    gone.push(link.id);
                }
                Err(_) => {}
            }
        }
        sockets.ring();
        // Several may go at a time, such as both ends of a veth pair.
        gone.into_iter().for_each(|gone| self.give_up_gone(gone));
        any
    }

    fn expire(&mut self, at: Instant) {
        self.sockets.publish_due(at);
        while let Some(&timer) = self.timers.first().filter(|timer| timer.when <= at) {
            self.timers.remove(&timer);
            let number = timer.number;
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            entry.timer = None;
            match entry.due {
                Some(due) if due <= at => {
                    entry.carried.timeout(at);
                    self.mark(number);
                }
                // A timer that was put off stands at its old time: see `DrivenSession::set_timer`.
                later => entry.set_timer(number, later, &mut self.timers),
            }
        }
    }

    /// Serves the sessions that were marked, without a look at the interfaces. `may_wait`: see
    /// [`Pump::turn`].
    pub fn serve(&mut self, may_wait: bool, at: Instant) {
        let mut dirty = core::mem::take(&mut self.dirty);
        for number in dirty.drain(..) {
            // `serve_postponed` may have served it since it was marked, or it was removed.
            if self.entries.get(&number).is_some_and(|entry| entry.is_dirty) {
                self.serve_one(number, may_wait, at);
            }
        }
        // Nothing was marked meanwhile, so this only gives the allocation back.
        self.dirty = dirty;
        for link in &mut self.links {
            let _ = link.packets.flush();
        }
        if let Some(number) = self.timed.take()
            && let Some(entry) = self.entries.get_mut(&number)
        {
            entry.carried.flushed();
        }
    }

    fn serve_one(&mut self, number: SessionNumber, may_wait: bool, at: Instant) {
        let Self { links, entries, postponed, postponed_since, timers, is_timed, timed, .. } = self;
        let aggregate = self.aggregate.as_mut();
        let Some(entry) = entries.get_mut(&number) else { return };
        entry.is_dirty = false;
        let Some(link) = links.iter_mut().find(|link| link.id == entry.link) else { return };
        let when = match entry.carried.pump(&mut *link.packets, may_wait, at) {
            Ok(()) if entry.is_to_stay(aggregate, at) => entry.carried.next_timeout(),
            // The program's side has frozen the stream, and knows.
            Err(Ending::Program) => None,
            _ => {
                entry.carried.give_up();
                None
            }
        };
        // Of several sessions in one round one is timed: messages are a sample in any case.
        if entry.carried.is_timed() {
            *timed = Some(number);
        }
        *is_timed = entry.carried.stream().ledger().times().is_some();
        if entry.carried.is_postponed() && !entry.is_postponed {
            entry.is_postponed = true;
            if postponed.is_empty() {
                *postponed_since = at;
            }
            postponed.push(number);
        }
        entry.set_timer(number, when, timers);
    }
}
