//! UDP sockets whose datagrams to and from other hosts this process carries.
//!
//! There is nothing to be kept up for a datagram: what arrives waits in the socket's queue, what is
//! sent goes out at once. A destination needs a *way*, which somebody else finds out
//! ([`Sent::Ask`]); until it is known, and for everything that is not plain, the answer is that the
//! kernel's socket has to send. Receiving does not come here: the queue has a lock of its own,
//! which nobody holds longer than a copy takes. Read `docs/understand/moves.md`, "UDP", then
//! `sojourn_proto::udp`.

use crate::counts::Counts;
use crate::figures::BEAT;
use crate::hash::Words;
use crate::link_hop::{LinkHop, LinkId, header_for};
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

/// Destinations of a socket whose ways are remembered. One more, and all are asked for again.
const WAYS_MAX: usize = 256;
/// A way that is in use is asked for again after so long (microseconds): the kernel may have
/// learned of a smaller packet size.
const WAY_LASTS_US: u64 = 2_000_000;

/// A socket's queue, which its calls read and the pump fills.
pub type Waiting = Arc<Mutex<Socket>>;

/// How datagrams get to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address of this host that they come from.
    pub from: IpAddr,
    /// What of the way is in frames.
    pub hop: LinkHop,
}

/// What is known of a destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// When it was asked for last.
    asked: Instant,
    /// `None`: the kernel sends.
    pub(crate) way: Option<Source>,
}

/// What became of a datagram that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way, or lost as on any way; the way is to be asked for again if one is named.
    Done(Option<IpAddr>),
    /// The kernel's socket has to send it, and gives whatever error there is.
    Kernel,
    /// The same; and the way to there is to be asked for.
    Ask(IpAddr),
}

/// One socket.
#[derive(Debug)]
pub struct Datagrams {
    pub(crate) socket: Waiting,
    /// The other side of its stream: its bell.
    pub(crate) stream: Stream,
    local: SocketAddr,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) link: LinkId,
    pub(crate) ways: HashMap<IpAddr, Known>,
    /// The headers of the last datagram that was sent, and until when its way counts.
    pub(crate) last: Option<(SocketAddr, Header)>,
    pub(crate) identification: u16,
    /// Its readers are to be rung.
    is_rung: bool,
    /// Datagrams that were sent, and their bytes.
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// It is among those whose counts are to be told.
    has_beat: bool,
}

impl Datagrams {
    /// A socket on an interface; `stream` is the other side of its stream, of which only the bells
    /// are used.
    pub fn new(socket: Waiting, stream: Stream, link: LinkId) -> Self {
        let (local, peer) = {
            let socket = lock(&socket);
            (socket.local(), socket.peer())
        };
        let ways = HashMap::with_capacity(WAYS_MAX);
        Self {
            socket,
            stream,
            local,
            peer,
            link,
            ways,
            last: None,
            identification: 0,
            is_rung: false,
            sent: 0,
            sent_bytes: 0,
            has_beat: false,
        }
    }

    /// What the program has not read; none if that was taken before. The last counts are told.
    pub fn leave(&self) -> Option<SessionRecord> {
        self.tell();
        lock(&self.socket).export()
    }

    /// How much it was until now.
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

    fn tell(&self) {
        self.stream.ledger().tell(&self.counts().words());
    }

    /// Whether what came for this host's endpoint from there is its own.
    fn takes(&self, to: SocketAddr, from: SocketAddr) -> bool {
        let is_local = self.local.ip().is_unspecified() || self.local.ip() == to.ip();
        let is_family = to.is_ipv4() == self.local.is_ipv4() || self.local.ip().is_unspecified();
        is_local
            && is_family
            && self.local.port() == to.port()
            && self.peer.is_none_or(|peer| peer == from)
    }

    /// The way to there as it is known, and whether it is to be asked for.
    pub(crate) fn way(&mut self, to: IpAddr, at: Instant) -> (Option<Source>, bool) {
        if let Some(known) = self.ways.get_mut(&to) {
            let is_old = at.since(known.asked).as_micros() >= WAY_LASTS_US;
            if is_old {
                known.asked = at;
            }
            return (known.way, is_old);
        }
        if self.ways.len() >= WAYS_MAX {
            self.ways.clear();
        }
        self.ways.insert(to, Known { asked: at, way: None });
        (None, true)
    }

    pub(crate) fn header(
        &mut self,
        target: SocketAddr,
        way: &Source,
        ip: IpOptions,
    ) -> Option<Header> {
        if let Some((to, header)) = &self.last
            && *to == target
        {
            return Some(*header);
        }
        let source = SocketAddr::new(way.from, self.local.port());
        let flow = FlowKey { protocol: Protocol::Udp, source, target };
        let header = header_for(flow, ip, &way.hop)?;
        self.last = Some((target, header));
        Some(header)
    }
}

/// All UDP sockets of a pump.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) all: HashMap<u32, Datagrams, BuildHasherDefault<Words>>,
    /// Connected ones, by what their own frames say.
    connected: HashMap<FlowKey, u32, BuildHasherDefault<Words>>,
    /// The others, by their ports.
    others: HashMap<u16, Vec<u32>, BuildHasherDefault<Words>>,
    rung: Vec<u32>,
    /// Those whose counts are to be told, and when: the first comes first.
    pub(crate) beats: VecDeque<(Instant, u32)>,
    /// Datagrams that came before their socket, the oldest first: the filter is told a moment
    /// earlier.
    early: VecDeque<Early>,
}

/// See [`Sockets::early`].
#[derive(Debug)]
struct Early {
    key: FlowKey,
    envelope: Envelope,
    payload: Box<[u8]>,
    segment_size: u16,
    at: Instant,
}

/// So many are kept, and so long (microseconds): a later socket of the same port is another.
const EARLY_MAX: usize = 256;
const EARLY_LASTS_US: u64 = 500_000;

impl Sockets {
    fn flow_of(one: &Datagrams) -> Option<FlowKey> {
        let target = one.peer?;
        Some(FlowKey { protocol: Protocol::Udp, source: one.local, target })
    }

    pub(crate) fn insert(&mut self, number: u32, one: Datagrams, now: Instant) {
        match Self::flow_of(&one) {
            Some(flow) => drop(self.connected.insert(flow, number)),
            None => self.others.entry(one.local.port()).or_default().push(number),
        }
        self.all.insert(number, one);
        // So that neither ringing nor a beat allocates.
        self.rung.reserve(self.all.len() - self.rung.len());
        self.beats.reserve(self.all.len() - self.beats.len());
        for _ in 0..self.early.len() {
            if let Some(Early { key, envelope, payload, segment_size, at }) = self.early.pop_front()
                && now.since(at).as_micros() < EARLY_LASTS_US
            {
                self.arrived(key, &envelope, &payload, segment_size, at);
            }
        }
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Datagrams> {
        let one = self.all.remove(&number)?;
        self.beats.retain(|(_, other)| *other != number);
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

    /// Whose it is.
    fn find(&self, key: &FlowKey) -> Option<u32> {
        let (from, to) = (key.source, key.target);
        let is_its = |number: &u32| self.all.get(number).is_some_and(|one| one.takes(to, from));
        let exact = self.connected.get(&key.reversed()).copied();
        exact.or_else(|| self.others.get(&to.port())?.iter().copied().find(is_its))
    }

    /// A datagram, or several merged ones, has arrived.
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
            if self.early.len() == EARLY_MAX {
                self.early.pop_front();
            }
            let (envelope, payload) = (*envelope, payload.into());
            self.early.push_back(Early { key, envelope, payload, segment_size, at });
            return;
        };
        lock(&one.socket).on_datagram(key.source, envelope, payload, segment_size);
        begin_beat(&mut self.beats, number, one, at);
        if !one.is_rung {
            one.is_rung = true;
            self.rung.push(number);
        }
    }

    /// Tells the counts that are due.
    pub(crate) fn tell_due(&mut self, at: Instant) {
        while let Some(&(_, number)) = self.beats.front().filter(|(due, _)| *due <= at) {
            self.beats.pop_front();
            if let Some(one) = self.all.get_mut(&number) {
                one.has_beat = false;
                one.tell();
            }
        }
    }

    /// When there are counts to be told.
    pub(crate) fn next_beat(&self) -> Option<Instant> {
        self.beats.front().map(|(due, _)| *due)
    }

    /// Wakes those who wait for what has arrived.
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

/// Something has happened: it will be told, unless it will be anyhow.
pub(crate) fn begin_beat(
    beats: &mut VecDeque<(Instant, u32)>,
    number: u32,
    one: &mut Datagrams,
    at: Instant,
) {
    if !one.has_beat {
        one.has_beat = true;
        beats.push_back((at + BEAT, number));
    }
}

pub(crate) fn lock(socket: &Mutex<Socket>) -> MutexGuard<'_, Socket> {
    // Nothing is left half done under it.
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}
