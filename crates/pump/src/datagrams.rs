//! UDP sockets whose datagrams to and from other hosts this process carries.
//!
//! A datagram needs no state: an arriving one waits in the socket's queue, an outgoing one is sent
//! at once. A destination needs a *route*, which the caller finds out ([`Sent::Ask`]). Until a
//! route is known, and for every datagram that is not plain, the answer is that the kernel's socket
//! has to send. Receiving does not come here: the queue has a lock of its own, which no thread
//! holds longer than a copy takes. Not here: building the frames (`outgoing`). Read
//! `docs/understand/moves.md`, "UDP", then `sojourn_proto::udp`.

use crate::counts::Counts;
use crate::early::{EarlyDatagram, EarlyDatagrams};
use crate::figures::BEAT;
use crate::hash::WordHasher;
use crate::link_hop::{LinkHop, LinkId, header_for};
use crate::session_number::SessionNumber;
use sojourn_proto::record::{IpOptions, SessionRecord};
use sojourn_proto::time::Instant;
use sojourn_proto::udp::{Envelope, Socket};
use sojourn_stream::Stream;
use sojourn_wire::frame::Header;
use sojourn_wire::{FlowKey, Protocol};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Destinations of a socket whose routes are remembered. With one more, all are forgotten and asked
/// for again.
const ROUTES_MAX: usize = 256;
/// The age at which a route in use is asked for again (microseconds): the kernel may have learned
/// of a smaller packet size.
const ROUTE_AGE_US_MAX: u64 = 2_000_000;

/// A socket's queue, which its calls read and the pump fills.
pub type Waiting = Arc<Mutex<Socket>>;

/// The route of datagrams to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address of this host from which they come.
    pub from: IpAddr,
    /// The part of the next hop that is in frames.
    pub hop: LinkHop,
}

/// The pump's knowledge of a destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The time of the last question.
    asked: Instant,
    /// `None` means that the kernel sends there.
    pub(crate) route: Option<Source>,
}

/// The outcome of sending a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The datagram is under way, or lost as on any link. If an address is named, the caller asks
    /// for the route to it again.
    Done(Option<IpAddr>),
    /// The kernel's socket has to send it, and returns the error if there is one.
    Kernel,
    /// The kernel's socket has to send it, and the caller asks for the route to that address.
    Ask(IpAddr),
}

/// The headers of a datagram that was sent.
#[derive(Debug)]
pub(crate) struct LastSent {
    target: SocketAddr,
    header: Header,
}

/// The way to an address.
pub(crate) struct KnownRoute {
    pub(crate) route: Option<Source>,
    /// The caller has to ask for the route.
    pub(crate) asks: bool,
}

/// The time of the next write of a socket's counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    due: Instant,
    number: SessionNumber,
}

/// One UDP socket.
#[derive(Debug)]
pub struct Datagrams {
    pub(crate) socket: Waiting,
    /// The other side of the socket's stream, of which only the bells are used.
    pub(crate) stream: Stream,
    local: SocketAddr,
    /// The socket is bound to the unspecified IPv6 address, which stands for both families.
    is_both: bool,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) link: LinkId,
    pub(crate) routes: HashMap<IpAddr, Known>,
    /// The last datagram that was sent.
    pub(crate) last: Option<LastSent>,
    pub(crate) identification: u16,
    /// The socket's readers are to be rung.
    is_rung: bool,
    /// Datagrams that were sent, and their bytes.
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// The socket is in the list of those whose counts are to be written.
    has_beat: bool,
}

impl Datagrams {
    /// Makes a socket on an interface; `stream` is the other side of its stream, of which only the
    /// bells are used. An IPv6 socket that is `v6_only` takes no IPv4 datagram (`IPV6_V6ONLY`,
    /// ipv6(7)).
    pub fn new(socket: Waiting, stream: Stream, link: LinkId, v6_only: bool) -> Self {
        let (local, peer) = {
            let socket = lock(&socket);
            (socket.local(), socket.peer())
        };
        let routes = HashMap::with_capacity(ROUTES_MAX);
        Self {
            socket,
            stream,
            local,
            is_both: local.is_ipv6() && !v6_only,
            peer,
            link,
            routes,
            last: None,
            identification: 0,
            is_rung: false,
            sent: 0,
            sent_bytes: 0,
            has_beat: false,
        }
    }

    /// Returns the datagrams that the program has not read; `None` if they were taken before.
    /// Writes the last counts.
    pub fn leave(&self) -> Option<SessionRecord> {
        self.publish();
        lock(&self.socket).export()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let tally = lock(&self.socket).tally();
        Counts {
            sent_bytes: self.sent_bytes,
            sent: self.sent,
            received_bytes: tally.queued_bytes,
            received: tally.queued,
            dropped: tally.full,
        }
    }

    fn publish(&self) {
        self.stream.ledger().publish(&self.counts().words());
    }

    /// Returns true if datagrams from `from` to this host's address `to` are this socket's.
    fn takes(&self, to: SocketAddr, from: SocketAddr) -> bool {
        let own = self.local.ip();
        let is_any = own.is_unspecified() && (own.is_ipv4() == to.is_ipv4() || self.is_both);
        (is_any || own == to.ip())
            && self.local.port() == to.port()
            && self.peer.is_none_or(|peer| peer == from)
    }

    /// Returns the known route to an address.
    pub(crate) fn route(&mut self, to: IpAddr, at: Instant) -> KnownRoute {
        if let Some(known) = self.routes.get_mut(&to) {
            let is_old = at.since(known.asked).as_micros() >= ROUTE_AGE_US_MAX;
            if is_old {
                known.asked = at;
            }
            return KnownRoute { route: known.route, asks: is_old };
        }
        if self.routes.len() >= ROUTES_MAX {
            self.routes.clear();
        }
        // The question counts as asked: until the answer comes the kernel sends, and nobody asks
        // again.
        self.routes.insert(to, Known { asked: at, route: None });
        KnownRoute { route: None, asks: true }
    }

    pub(crate) fn header(
        &mut self,
        target: SocketAddr,
        route: &Source,
        ip: IpOptions,
    ) -> Option<Header> {
        if let Some(last) = &self.last
            && last.target == target
        {
            return Some(last.header);
        }
        let source = SocketAddr::new(route.from, self.local.port());
        let flow = FlowKey { protocol: Protocol::Udp, source, target };
        let header = header_for(flow, ip, &route.hop)?;
        self.last = Some(LastSent { target, header });
        Some(header)
    }
}

/// All UDP sockets of a pump.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) all: HashMap<SessionNumber, Datagrams, BuildHasherDefault<WordHasher>>,
    /// Connected sockets, by the flow of their own frames.
    connected: HashMap<FlowKey, SessionNumber, BuildHasherDefault<WordHasher>>,
    /// The other sockets, by their ports.
    others: HashMap<u16, Vec<SessionNumber>, BuildHasherDefault<WordHasher>>,
    rung: Vec<SessionNumber>,
    /// In the order of the times.
    pub(crate) beats: VecDeque<Beat>,
    early: EarlyDatagrams,
}

impl Sockets {
    fn flow_of(one: &Datagrams) -> Option<FlowKey> {
        let target = one.peer?;
        Some(FlowKey { protocol: Protocol::Udp, source: one.local, target })
    }

    pub(crate) fn insert(&mut self, number: SessionNumber, one: Datagrams, now: Instant) {
        match Self::flow_of(&one) {
            Some(flow) => drop(self.connected.insert(flow, number)),
            None => self.others.entry(one.local.port()).or_default().push(number),
        }
        self.all.insert(number, one);
        // The room is reserved here, so that neither ringing nor a write of counts allocates.
        self.rung.reserve(self.all.len() - self.rung.len());
        self.beats.reserve(self.all.len() - self.beats.len());
        // One that is another socket's is early still.
        for EarlyDatagram { key, envelope, payload, segment_size, at } in self.early.take(now) {
            self.arrived(key, &envelope, &payload, segment_size, at);
        }
    }

    /// Freezes the streams of an interface's sockets, which the program's library sends home.
    pub(crate) fn give_up(&mut self, link: LinkId) {
        for one in self.all.values().filter(|one| one.link == link) {
            one.stream.freeze();
            one.stream.attention();
            one.stream.notify_peer();
        }
    }

    pub(crate) fn remove(&mut self, number: SessionNumber) -> Option<Datagrams> {
        let one = self.all.remove(&number)?;
        self.beats.retain(|beat| beat.number != number);
        match Self::flow_of(&one) {
            Some(flow) => drop(self.connected.remove(&flow)),
            None => {
                let port = one.local.port();
                if let Some(numbers) = self.others.get_mut(&port) {
                    numbers.retain(|other| *other != number);
                    if numbers.is_empty() {
                        self.others.remove(&port);
                    }
                }
            }
        }
        Some(one)
    }

    /// Finds the socket of a datagram.
    fn find(&self, key: &FlowKey) -> Option<SessionNumber> {
        let (from, to) = (key.source, key.target);
        let is_its =
            |number: &SessionNumber| self.all.get(number).is_some_and(|one| one.takes(to, from));
        // A connected socket goes before the others, as in the kernel (`compute_score` in `udp.c`).
        // Of the others at most one takes a datagram: those that share a port with one stay in the
        // kernel (`SHARED_PORT`).
        let exact = self.connected.get(&key.reversed()).copied();
        exact.or_else(|| self.others.get(&to.port())?.iter().copied().find(is_its))
    }

    /// Takes in a datagram, or several merged ones.
    pub(crate) fn arrived(
        &mut self,
        key: FlowKey,
        envelope: &Envelope,
        payload: &[u8],
        segment_size: u16,
        at: Instant,
    ) {
        let number = self.find(&key);
        let Some((number, one)) = number.and_then(|at| Some((at, self.all.get_mut(&at)?))) else {
            let (envelope, payload) = (*envelope, payload.into());
            self.early.push(EarlyDatagram { key, envelope, payload, segment_size, at });
            return;
        };
        lock(&one.socket).on_datagram(key.source, envelope, payload, segment_size);
        begin_beat(&mut self.beats, number, one, at);
        if !one.is_rung {
            one.is_rung = true;
            self.rung.push(number);
        }
    }

    /// Writes the counts that are due.
    pub(crate) fn publish_due(&mut self, at: Instant) {
        while let Some(&Beat { number, .. }) = self.beats.front().filter(|beat| beat.due <= at) {
            self.beats.pop_front();
            if let Some(one) = self.all.get_mut(&number) {
                one.has_beat = false;
                one.publish();
            }
        }
    }

    /// Returns the time of the next write of counts.
    pub(crate) fn next_beat(&self) -> Option<Instant> {
        self.beats.front().map(|beat| beat.due)
    }

    /// Wakes the threads that wait for arrived datagrams.
    pub(crate) fn ring(&mut self) {
        let Self { all, rung, .. } = self;
        for number in rung.drain(..) {
            if let Some(one) = all.get_mut(&number) {
                one.is_rung = false;
                one.stream.notify_peer();
            }
        }
    }
}

/// Plans a write of the socket's counts, unless one is planned already.
pub(crate) fn begin_beat(
    beats: &mut VecDeque<Beat>,
    number: SessionNumber,
    one: &mut Datagrams,
    at: Instant,
) {
    if !one.has_beat {
        one.has_beat = true;
        beats.push_back(Beat { due: at + BEAT, number });
    }
}

pub(crate) fn lock(socket: &Mutex<Socket>) -> MutexGuard<'_, Socket> {
    // No user of the lock leaves anything half done.
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}
