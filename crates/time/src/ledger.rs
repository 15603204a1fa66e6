//! The pure core: a stream of stamped events in, times by session and row out.
//!
//! A send is one event. A receive is two: data arrived, a call took them. TCP's are matched by
//! sequence numbers, UDP's by packet where the kernel says which, those of Unix sockets and pipes
//! by order. All state is bounded; an event without a partner is counted. Not here: where events
//! come from (`programs`), the arithmetic of a chain (`chain`).

use crate::chain::{Disordered, RowEnd, Times, divide, span};
use crate::event::{
    Ends, Event, Inode, Kind, PacketId, Protocol, SocketId, Stamp, arrived, sent, taken,
};
use crate::row::{Direction, Row};
use crate::session::Session;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

/// Sessions that are told apart; calls of others are counted only.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// Arrivals of one socket that wait for a call.
pub(crate) const ARRIVALS_MAX: usize = 4096;
/// Packets that have been seen at one end only.
const TRANSITS_MAX: usize = 4096;
/// The longest transit (ns): after a longer time the address belongs to another packet.
const TRANSIT_MAX_NS: u64 = 1_000_000_000;

/// Counts of messages that were left out, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Chains whose stamps were not in order: left out.
    pub disordered: u64,
    /// Spans from which more was to be taken off than there was: taken for zero.
    pub clamped: u64,
    /// Arrivals that no call took, or that gave way to newer ones: left out.
    pub dropped: u64,
    /// Calls of sessions beyond the number that is told apart: left out.
    pub beyond: u64,
}

/// What sessions are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    protocol: Protocol,
    inode: Inode,
}

impl Key {
    const fn of(ends: &Ends) -> Self {
        Self { protocol: ends.protocol, inode: ends.inode }
    }
}

/// A packet that has left a device, or come to one.
#[derive(Clone, Copy, Debug)]
struct Passage {
    stamp: Stamp,
    /// Those of the socket that sent it, or that receives it.
    ends: Ends,
}

/// The arrivals of a call.
#[derive(Default)]
struct Partners {
    /// Those that it completes.
    complete: Vec<Event>,
    /// The number of those that are left out.
    dropped: u64,
}

/// The times of all sessions, and events that wait for their partners.
#[derive(Debug, Default)]
pub struct Ledger {
    sessions: BTreeMap<Key, Session>,
    arrivals: HashMap<SocketId, VecDeque<Event>>,
    left: HashMap<PacketId, Passage>,
    came: HashMap<PacketId, Passage>,
    faults: Faults,
}

impl Ledger {
    /// Takes one event.
    pub fn add(&mut self, event: &Event) {
        let added = match event.kind {
            Kind::Sent => self.sent(event),
            Kind::Arrived => {
                self.arrived(event);
                Ok(())
            }
            Kind::Taken => self.taken(event),
            Kind::Probed => Ok(()),
        };
        if added == Err(Disordered) {
            self.faults.disordered += 1;
        }
    }

    /// The counts of messages that were left out so far.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// The sessions, those with the most chains first.
    #[must_use]
    pub fn sessions(&self) -> Vec<&Session> {
        let mut sessions: Vec<&Session> = self.sessions.values().collect();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.chains()));
        sessions
    }

    fn session(&mut self, event: &Event) -> Option<&mut Session> {
        let key = Key::of(&event.ends);
        if !self.sessions.contains_key(&key) && self.sessions.len() >= SESSIONS_MAX {
            self.faults.beyond += 1;
            return None;
        }
        let session = self.sessions.entry(key).or_insert_with(|| Session::of(&event.ends));
        session.process = event.process;
        // A UDP socket's own address is known only from when it is bound.
        session.local = event.ends.local.or(session.local);
        session.remote = event.ends.remote.or(session.remote);
        Some(session)
    }

    fn sent(&mut self, event: &Event) -> Result<(), Disordered> {
        let stamps = &event.stamps;
        let Some(session) = self.session(event).filter(|_| event.result > 0) else { return Ok(()) };
        session.send.calls += 1;
        session.send.bytes += event.result.unsigned_abs() as u64;
        let is_network = matches!(event.ends.protocol, Protocol::Tcp | Protocol::Udp);
        // The window is full, or the queueing discipline keeps the packet: it leaves later.
        if is_network && !stamps[sent::DONE].is_set() {
            session.send.without += 1;
            return Ok(());
        }
        let times = match is_network {
            true => divide(
                &stamps[sent::ENTER],
                &[
                    end(Row::EntryCopyIn, stamps[sent::OUT]),
                    end(Row::ProtocolOutput, stamps[sent::IP]),
                    end(Row::IpOutput, stamps[sent::LINK]),
                    end(Row::LinkOutput, stamps[sent::DONE]),
                ],
            )?,
            // The writer puts the data where the reader takes them. Nobody is woken if the reader
            // has data already: then the call's end counts.
            false => {
                let done = [stamps[sent::DONE], stamps[sent::EXIT]];
                let done = done.into_iter().find(Stamp::is_set).unwrap_or_default();
                divide(&stamps[sent::ENTER], &[end(Row::EntryCopyIn, done)])?
            }
        };
        session.add(Direction::Send, &times);
        if stamps[sent::DONE].is_set() {
            let rest = span(&stamps[sent::DONE], &stamps[sent::EXIT], 0)?;
            session.rest.add(rest.net_ns);
        }
        self.faults.clamped += times.clamped;
        if let Some(packet) = event.packet.filter(|_| is_network) {
            self.has_left(packet, Passage { stamp: stamps[sent::DONE], ends: event.ends });
        }
        Ok(())
    }

    fn arrived(&mut self, event: &Event) {
        let start = event.stamps[start_of(event)];
        if let Some(packet) = event.packet.filter(|_| start.is_set()) {
            self.has_come(packet, Passage { stamp: start, ends: event.ends });
        }
        let is_new = !self.arrivals.contains_key(&event.ends.sock);
        if is_new && self.arrivals.len() >= SESSIONS_MAX {
            self.faults.dropped += 1;
            return;
        }
        let waiting = self.arrivals.entry(event.ends.sock).or_default();
        if waiting.len() >= ARRIVALS_MAX {
            waiting.pop_front();
            self.faults.dropped += 1;
        }
        waiting.push_back(*event);
    }

    fn taken(&mut self, event: &Event) -> Result<(), Disordered> {
        let Some(session) = self.session(event).filter(|_| event.result > 0) else { return Ok(()) };
        session.receive.calls += 1;
        session.receive.bytes += event.result.unsigned_abs() as u64;
        let waiting = self.arrivals.get_mut(&event.ends.sock);
        let Partners { complete, dropped } =
            waiting.map(|waiting| partners(waiting, event)).unwrap_or_default();
        self.faults.dropped += dropped;
        let mut all = Ok(());
        for arrival in &complete {
            match receive(arrival, event) {
                Ok(times) => {
                    self.faults.clamped += times.clamped;
                    if let Some(session) = self.session(event) {
                        session.add(Direction::Receive, &times);
                    }
                }
                Err(disordered) => all = Err(disordered),
            }
        }
        if let Some(session) = self.session(event).filter(|_| complete.is_empty()) {
            session.receive.without += 1;
        }
        all
    }

    /// A packet has left a device; perhaps its arrival was told before.
    fn has_left(&mut self, packet: PacketId, left: Passage) {
        if let Some(came) = self.came.remove(&packet)
            && self.crossed(&left, &came)
        {
            return;
        }
        if self.left.len() >= TRANSITS_MAX {
            self.left.clear();
        }
        self.left.insert(packet, left);
    }

    fn has_come(&mut self, packet: PacketId, came: Passage) {
        if let Some(left) = self.left.remove(&packet)
            && self.crossed(&left, &came)
        {
            return;
        }
        if self.came.len() >= TRANSITS_MAX {
            self.came.clear();
        }
        self.came.insert(packet, came);
    }

    /// Adds the transit if both stamps are of one packet; returns false if they are not.
    fn crossed(&mut self, left: &Passage, came: &Passage) -> bool {
        // Addresses of packets are used again and again: the time has to fit, and the ports.
        let way = came.stamp.at.checked_sub(left.stamp.at);
        let is_soon = way.is_some_and(|ns| ns < TRANSIT_MAX_NS);
        if !is_soon || !are_ends_of_one(&left.ends, &came.ends) {
            return false;
        }
        let Some(session) = self.sessions.get_mut(&Key::of(&left.ends)) else { return false };
        if let Ok(span) = span(&left.stamp, &came.stamp, 0) {
            session.transit.add(span.net_ns);
        }
        true
    }
}

/// Returns true if the sender's data come to the receiver. Sockets of UDP may have no peer, and may
/// be bound to any address: then ports have to do.
fn are_ends_of_one(sender: &Ends, receiver: &Ends) -> bool {
    let fits = |one: Option<SocketAddr>, other: Option<SocketAddr>| {
        one.zip(other).is_none_or(|(one, other)| one.port() == other.port())
    };
    sender.protocol == receiver.protocol
        && fits(sender.local, receiver.remote)
        && fits(sender.remote, receiver.local)
}

/// The end of a row that begins on the same processor.
const fn end(row: Row, stamp: Stamp) -> RowEnd {
    RowEnd { row, stamp, usual: 0 }
}

/// The first stamp of an arrival that is set.
fn start_of(event: &Event) -> usize {
    let first = event.stamps.iter().position(Stamp::is_set);
    first.unwrap_or(arrived::READY)
}

/// Takes the arrivals that a call completes.
fn partners(waiting: &mut VecDeque<Event>, call: &Event) -> Partners {
    let exit = call.stamps[taken::EXIT].at;
    let is_before = |arrival: &Event| arrival.stamps[arrived::READY].at <= exit;
    match call.ends.protocol {
        Protocol::Tcp => {
            // Sequence numbers wrap: the sign of their difference says which is first.
            let is_behind = |number: u32, other: u32| number.wrapping_sub(other) as i32 > 0;
            let mut found = Partners::default();
            waiting.retain(|arrival| {
                if is_behind(arrival.last, call.last) {
                    return true;
                }
                match is_behind(arrival.last, call.first) {
                    true => found.complete.push(*arrival),
                    false => found.dropped += 1,
                }
                false
            });
            found
        }
        Protocol::Udp => {
            let enter = call.stamps[taken::ENTER].at;
            let mut dropped = 0;
            // A call that slept found an empty queue: earlier arrivals were lost, or peeked at.
            while call.stamps[taken::RUN].at > enter
                && waiting.front().is_some_and(|arrival| arrival.stamps[arrived::READY].at < enter)
            {
                waiting.pop_front();
                dropped += 1;
            }
            let at = match call.packet {
                None => (!waiting.is_empty()).then_some(0),
                packet => waiting.iter().position(|arrival| arrival.packet == packet),
            };
            let found = at.and_then(|at| waiting.remove(at));
            Partners { complete: found.into_iter().filter(is_before).collect(), dropped }
        }
        // The first arrival woke the reader; later ones until the call's end are in the same bytes.
        Protocol::Unix | Protocol::Pipe => {
            let count = waiting.iter().take_while(|arrival| is_before(arrival)).count();
            Partners { complete: waiting.drain(..count).take(1).collect(), dropped: 0 }
        }
    }
}

/// The times of one receive.
fn receive(arrival: &Event, call: &Event) -> Result<Times, Disordered> {
    let start = start_of(arrival);
    let ready = arrival.stamps[arrived::READY];
    let [enter, run, exit] = [taken::ENTER, taken::RUN, taken::EXIT].map(|at| call.stamps[at]);
    let is_woken = run.is_set() && run.at >= ready.at && run.at <= exit.at;
    let unset = Stamp::default();
    // The reader slept in the call; or in a call before it (poll, epoll); or it was at work, and
    // the data waited for it; or it looked again and again.
    let (woken, asked) = match (is_woken, ready.at <= enter.at) {
        (true, true) if run.at <= enter.at => (run, enter),
        (_, true) => (unset, enter),
        (true, false) => (run, unset),
        (false, false) => (unset, unset),
    };
    let (stamps, usual) = (&arrival.stamps, arrival.usual);
    let after = |at: usize| if at > start { stamps[at] } else { unset };
    divide(
        &stamps[start],
        &[
            end(Row::Device, after(arrived::FILTER)),
            end(Row::Filter, after(arrived::IP)),
            end(Row::IpInput, after(arrived::IN)),
            end(Row::ProtocolInput, after(arrived::READY)),
            RowEnd { row: Row::WakeUp, stamp: woken, usual },
            RowEnd {
                row: Row::InSocket,
                stamp: asked,
                usual: if woken.is_set() { 0 } else { usual },
            },
            RowEnd { row: Row::CopyOutExit, stamp: exit, usual },
        ],
    )
}
