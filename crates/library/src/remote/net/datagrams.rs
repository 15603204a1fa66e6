//! UDP sockets whose engine runs in this process: how they come, send and go.
//!
//! Not here: receiving (`crate::io::datagrams`). Read the head of `net` first, then
//! `sojourn_pump::Datagrams`.

use super::{Delegated, Net, hop_of};
use crate::fds::slot::Slot;
use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::engine::{Engine, Job};
use crate::process::library::{Library, OwnSession};
use crate::remote::carry_server::ANSWER_LIMIT;
use crate::remote::delegation::{Delegation, LinkSockets};
use crate::session::Session;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use rustix::io::IoSlice;
use rustix::net::sockopt;
use sojourn_proto::record::{Kind, SessionRecord};
use sojourn_proto::udp::{Limits, Socket};
use sojourn_pump::{Datagrams, LinkId, Sent, Source, has_room, now};
use sojourn_session::{DelegateT, DelegationToken, RouteT};
use sojourn_stream::Stream;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// Bounds of the payload (bytes) that may wait in one socket; the lower one is one datagram.
const WAITING_MIN: u32 = 64 << 10;
const WAITING_MAX: u32 = 16 << 20;
/// Bytes of the receive buffer for which the queue has a place for one more datagram: about what
/// the kernel charges for the smallest, overhead included.
const BYTES_FOR_ONE: u32 = 512;

/// How often this side looks whether the server has given back the packets of a socket that was
/// never begun here.
const IN_TRANSIT_SLICE: Duration = Duration::from_micros(100);

/// Returns true if a record has datagrams that the program has not read.
pub(crate) fn has_unread(record: &SessionRecord) -> bool {
    matches!(&record.kind, Kind::Udp(udp) if !udp.receive_queue.is_empty())
}

/// Returns the limits of a queue as large as the socket's receive buffer.
fn limits_of(record: &SessionRecord) -> Option<Limits> {
    let Kind::Udp(udp) = &record.kind else { return None };
    let bytes = udp.options.rcvbuf.clamp(WAITING_MIN, WAITING_MAX);
    Some(Limits {
        receive_bytes_max: bytes as usize,
        datagrams_max: (bytes / BYTES_FOR_ONE) as usize + 1,
    })
}

/// Returns true if a session's socket takes IPv6 alone, which does not change once it is bound
/// (ipv6(7)).
fn is_v6_only(session: &Session) -> bool {
    kernel::at(session.number()).is_ok_and(|fd| sockopt::ipv6_v6only(fd) == Ok(true))
}

/// What is left of a socket whose engine has ended.
pub(crate) struct EndedSocket {
    /// The server's token.
    pub(crate) token: Option<DelegationToken>,
    /// The unread datagrams.
    pub(crate) unread: Option<SessionRecord>,
}

impl Net {
    /// Runs the socket's engine from now on. `other`: the side of the stream that the server had.
    /// Returns false if that is impossible; the server learns of it when the session leaves.
    pub(crate) fn begin_datagrams(
        &self,
        engine: &Engine,
        session: OwnSession<'_>,
        other: Stream,
        delegation: &Delegation,
        sockets: Option<LinkSockets>,
    ) -> bool {
        let made = delegation.record.as_ref().and_then(|record| {
            let limits = limits_of(record)?;
            has_room(limits.receive_bytes_max).then(|| Socket::import(record, &limits).ok())?
        });
        let terms = &delegation.terms;
        let Some(socket) = made.map(|socket| Arc::new(Mutex::new(socket))) else { return false };
        let mut pump = lock(&self.pump);
        if !self.has_link(engine, &mut pump, terms, sockets) {
            return false;
        }
        // SYNC: under the pump's lock, before the claim; pairs with `withdraw`, for the same reason
        // as in `Net::begin`.
        fence(Ordering::SeqCst);
        if !other.claim() {
            drop(pump);
            self.return_in_transit(session, terms, socket, other);
            return false;
        }
        lock(&self.delegated).insert(session.slot(), Delegated::of(terms));
        let one =
            Datagrams::new(Arc::clone(&socket), other, LinkId(terms.link), is_v6_only(&session));
        pump.insert_datagrams(session.pump_number(), one, now());
        self.count.fetch_add(1, Ordering::SeqCst);
        session.library.set_hears_packets(&session, self.watch.packets());
        session.is_delegated.store(true, Ordering::SeqCst);
        self.leave(pump);
        session.receives_datagrams(socket);
        true
    }

    /// Gives back the datagrams of a socket that was called home before it was begun here. Those
    /// that have come since the filter was told are here, and nothing else knows of them: the
    /// server gives them to the kernel.
    fn return_in_transit(
        &self,
        session: OwnSession<'_>,
        terms: &DelegateT,
        socket: Arc<Mutex<Socket>>,
        other: Stream,
    ) {
        let deadline = sojourn_shm::Deadline::after(ANSWER_LIMIT);
        // The freeze has asked the server for the packets.
        while !other.has_flushed() && !deadline.is_over() {
            std::thread::sleep(IN_TRANSIT_SLICE);
        }
        let one = Datagrams::new(socket, other, LinkId(terms.link), is_v6_only(&session));
        let record = self.with_pump(session.library, |pump| {
            pump.insert_datagrams(session.pump_number(), one, now());
            pump.remove_datagrams(session.pump_number(), now())?.leave()
        });
        if let Some(record) = record.filter(has_unread) {
            self.give_unread(session.library, DelegationToken(terms.token), &record);
        }
    }

    /// Ends the socket's engine, once its packets come to the kernel again and those on their way
    /// have been taken in.
    pub(crate) fn end_datagrams(&self, slot: Slot) -> EndedSocket {
        let mut pump = lock(&self.pump);
        let removed = pump.remove_datagrams(slot.into(), now());
        self.leave(pump);
        let token = lock(&self.delegated).remove(&slot).map(|one| one.token);
        let Some(one) = removed else { return EndedSocket { token, unread: None } };
        self.count.fetch_sub(1, Ordering::SeqCst);
        EndedSocket { token, unread: one.leave() }
    }

    /// Gives unread datagrams to the server. Returns false if there is no server.
    pub(crate) fn give_unread(
        &self,
        library: &Library,
        token: DelegationToken,
        record: &SessionRecord,
    ) -> bool {
        self.server.give_back(library, None, token, false, record).is_some()
    }

    /// Takes over the route to an address.
    pub(crate) fn set_route(&self, slot: Slot, answer: &RouteT) {
        let ip = |bytes| -> IpAddr { Ipv6Addr::from(bytes).to_canonical() };
        let route =
            answer.is_there.then(|| Source { from: ip(answer.from), hop: hop_of(&answer.hop) });
        let mut pump = lock(&self.pump);
        pump.set_route(slot.into(), ip(answer.to), route);
        self.leave(pump);
    }

    /// Sends a datagram. Returns false if the kernel has to.
    fn send_datagram(
        &self,
        session: OwnSession<'_>,
        target: Option<SocketAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> bool {
        let mut pump = lock(&self.pump);
        // The session may have been withdrawn while this thread waited for the lock. What a port
        // sends after that does not reach the host any more.
        if !session.is_delegated() {
            self.leave(pump);
            return false;
        }
        let sent = pump.send_datagram(session.pump_number(), target, parts, segment, now());
        self.leave(pump);
        let (is_sent, asks) = match sent {
            Sent::Done(asks) => (true, asks),
            Sent::Ask(to) => (false, Some(to)),
            Sent::Kernel => (false, None),
        };
        if let Some(to) = asks {
            let local = lock(&session.facts).local;
            session.library.push(Job::AskRoute { local, to });
        }
        is_sent
    }
}

impl OwnSession<'_> {
    /// Sends a datagram past the kernel. Returns false if the kernel has to.
    pub(crate) fn send_past(
        self,
        target: Option<SocketAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> bool {
        let Some(net) = self.library.net().filter(|_| self.is_delegated()) else { return false };
        self.has_asked.store(true, Ordering::Relaxed);
        self.library.with_stack(|| net.send_datagram(self, target, parts, segment))
    }
}
