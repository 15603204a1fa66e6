//! UDP sockets that this process carries: how they come, send and go. Receiving is
//! `crate::io::datagrams`.
//!
//! Read the head of `net` first, then `sojourn_pump::Datagrams`.

use super::{Net, hop_of};
use crate::host::lock::lock;
use crate::process::engine::Job;
use crate::process::library::library;
use crate::process::room::has_room;
use crate::remote::carry_server::ANSWER_LIMIT;
use crate::remote::carry_server::Connected;
use crate::remote::delegation::Delegation;
use crate::session::Session;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use rustix::fd::AsFd;
use rustix::io::IoSlice;
use sojourn_ipc::Deadline;
use sojourn_proto::record::{Kind, SessionRecord};
use sojourn_proto::udp::{Limits, Socket};
use sojourn_pump::{Datagrams, Sent, Source, now, sealed};
use sojourn_session::{LendT, WayT};
use sojourn_shm::Held;
use sojourn_stream::Stream;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// Bytes of payload that may wait in one socket, at least (one datagram) and at most.
const WAITING_MIN: u32 = 64 << 10;
const WAITING_MAX: u32 = 16 << 20;
/// For so many bytes of the receive buffer there is a place for one datagram more: what the
/// smallest counts with its overhead.
const BYTES_FOR_ONE: u32 = 512;

/// How long the server may take to give back what was never carried here, and how often it is
/// looked whether it has.
const IN_TRANSIT_LIMIT: Duration = Duration::from_millis(200);
const IN_TRANSIT_SLICE: Duration = Duration::from_micros(100);

/// Whether a record has datagrams that its program has not read.
pub(crate) fn has_unread(record: &SessionRecord) -> bool {
    matches!(&record.kind, Kind::Udp(udp) if !udp.receive_queue.is_empty())
}

/// A queue as large as the socket's receive buffer.
fn limits_of(record: &SessionRecord) -> Option<Limits> {
    let Kind::Udp(udp) = &record.kind else { return None };
    let bytes = udp.options.rcvbuf.clamp(WAITING_MIN, WAITING_MAX);
    Some(Limits {
        receive_bytes_max: bytes as usize,
        datagrams_max: (bytes / BYTES_FOR_ONE) as usize + 1,
    })
}

impl Net {
    /// Carries the socket's datagrams from now on. `other`: the side of its stream that the server
    /// had. False: they are not carried; the server finds that out when the session leaves.
    pub(crate) fn begin_datagrams(
        &self,
        session: &Session,
        other: Stream,
        (delegation, packets): (&Delegation, Option<Held>),
    ) -> bool {
        let record = delegation.record.as_ref().filter(|_| has_room(0));
        let made = record.and_then(|record| {
            let limits = limits_of(record)?;
            Socket::import(record, &limits).ok()
        });
        let terms = &delegation.terms;
        let Some(socket) = made.map(|socket| Arc::new(Mutex::new(socket))) else { return false };
        let mut pump = lock(&self.pump);
        if !self.has_link(&mut pump, terms, packets) {
            return false;
        }
        // SYNC: under the pump's lock, before this is claimed; pairs with `withdraw`, as in
        // `Net::begin`.
        fence(Ordering::SeqCst);
        if !other.claim() {
            drop(pump);
            self.return_in_transit((session.slot(), terms), (socket, other));
            return false;
        }
        lock(&self.tokens).insert(session.slot(), (terms.token, terms.link));
        let one = Datagrams::new(Arc::clone(&socket), other, terms.link);
        pump.insert_datagrams(session.slot(), one, now());
        self.count.fetch_add(1, Ordering::SeqCst);
        library().set_hears_packets(session, self.watch.packets());
        session.is_delegated.store(true, Ordering::SeqCst);
        self.leave(pump);
        session.receives_datagrams(socket);
        true
    }

    /// The socket was called home before it was carried here. What has come for it since the filter
    /// was told is here, and nobody knows of it: the server says it to the kernel.
    fn return_in_transit(
        &self,
        (slot, terms): (u32, &LendT),
        (socket, other): (Arc<Mutex<Socket>>, Stream),
    ) {
        let deadline = sojourn_shm::Deadline::after(IN_TRANSIT_LIMIT);
        // The server was asked for it when the stream was frozen.
        while !other.has_flushed() && !deadline.is_over() {
            std::thread::sleep(IN_TRANSIT_SLICE);
        }
        let one = Datagrams::new(socket, other, terms.link);
        let record = self.with_pump(|pump| {
            pump.insert_datagrams(slot, one, now());
            pump.remove_datagrams(slot, now())?.leave()
        });
        if let Some(record) = record.filter(has_unread) {
            self.give_unread(terms.token, &record);
        }
    }

    /// Its datagrams come to the kernel again, and what was on its way has been taken: ends
    /// carrying it. Its token, and what was not read.
    pub(crate) fn end_datagrams(&self, slot: u32) -> (Option<u64>, Option<SessionRecord>) {
        let mut pump = lock(&self.pump);
        let removed = pump.remove_datagrams(slot, now());
        self.leave(pump);
        let token = lock(&self.tokens).remove(&slot).map(|(token, _)| token);
        let Some(one) = removed else { return (token, None) };
        self.count.fetch_sub(1, Ordering::SeqCst);
        (token, one.leave())
    }

    /// Gives the server what was not read. False: there is no server any more.
    pub(crate) fn give_unread(&self, token: u64, record: &SessionRecord) -> bool {
        let Ok(file) = sealed::pack(record) else { return false };
        if !self.has_server(library()) {
            return false;
        }
        let mut server = lock(&self.server);
        let Some(Connected { client, .. }) = &mut *server else { return false };
        let deadline = Deadline::after(ANSWER_LIMIT);
        client.with_deadline(deadline).give_back(token, false, Some(file.as_fd())).is_ok()
    }

    /// The way to somewhere is known.
    pub(crate) fn set_way(&self, slot: u32, told: &WayT) {
        let ip = |bytes| -> IpAddr { Ipv6Addr::from(bytes).to_canonical() };
        let way = told.is_there.then(|| Source { from: ip(told.from), hop: hop_of(&told.hop) });
        let mut pump = lock(&self.pump);
        pump.set_way(slot, ip(told.to), way);
        self.leave(pump);
    }

    /// Sends a datagram. False: the kernel has to.
    fn send_datagram(
        &self,
        session: &Session,
        target: Option<SocketAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> bool {
        let mut pump = lock(&self.pump);
        // It may have been withdrawn before the lock was had: what is sent by a port after that is
        // nobody's any more.
        if !session.is_delegated() {
            self.leave(pump);
            return false;
        }
        let sent = pump.send_datagram(session.slot(), target, parts, segment, now());
        self.leave(pump);
        let (is_sent, asks) = match sent {
            Sent::Done(asks) => (true, asks),
            Sent::Ask(to) => (false, Some(to)),
            Sent::Kernel => (false, None),
        };
        if let Some(to) = asks {
            let local = lock(&session.facts).local;
            library().push(Job::AskWay { local, to });
        }
        is_sent
    }
}

impl Session {
    /// Sends past the kernel. False: the kernel has to.
    pub(crate) fn send_past(
        &self,
        target: Option<SocketAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> bool {
        let Some(net) = library().net().filter(|_| self.is_delegated()) else { return false };
        self.has_asked.store(true, Ordering::Relaxed);
        library().with_stack(|| net.send_datagram(self, target, parts, segment))
    }
}
