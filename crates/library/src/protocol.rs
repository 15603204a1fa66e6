//! The protocol thread: talks to the server, watches peers and the kernel's descriptors of sessions that are away.
//!
//! It starts with the first hot session, sleeps in one `epoll_wait`, and never touches data. When the server is
//! gone it looks for a new one now and then, as long as sessions are away. Its connection with the server is in `server`,
//! what joined sessions need in `joins`. Not here: what joining and going home mean (`crate::join`, `crate::home`). Read `docs/streams.md` first.

mod joins;
pub(crate) mod server;

use crate::engine::{Engine, Job};
use crate::net::Net;
use crate::offer::Offer;
use crate::search::Search;
use crate::session::lock;
use crate::table::mark;
use crate::wanted::Wanted;
use crate::{Library, Session, kernel};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use sojourn_ipc::rt;
use sojourn_ipc::{Connection, Deadline};
use sojourn_session::{EventT, KindT, LendT, ReasonT, SessionClient, WhereT};
use sojourn_shm::fault;
use sojourn_stream::{Inbox, Stream};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// How long the server may take for an answer before it counts as gone.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long the server may take to lend what it has begun to carry, and how often it is looked whether it has.
const LENT_LIMIT: Duration = Duration::from_millis(200);
const LENT_SLICE: Duration = Duration::from_micros(100);
/// Events taken at once.
const EVENTS: usize = 64;

/// What an event of the thread's set is about: the top byte of its data.
const DOORBELL: u64 = 0;
const SERVER: u64 = 1 << 56;
const SESSION: u64 = 2 << 56;
const PEER: u64 = 3 << 56;
const INBOX: u64 = 4 << 56;
const FLUSH: u64 = 5 << 56;
const WHAT: u64 = 0xff << 56;

struct Peer {
    process: OwnedFd,
    sessions: usize,
}

struct OwnInbox {
    /// Its number in the thread's set: those of the server are too large to stand beside what an event is about.
    number: u64,
    inbox: Arc<Inbox>,
    /// Slot in the inbox → slot of the session.
    slots: HashMap<u32, u32>,
    /// Sessions that have it, as far as the server knows.
    uses: usize,
}

/// The thread's own state.
struct Thread {
    library: &'static Library,
    engine: &'static Engine,
    set: OwnedFd,
    client: Option<SessionClient<Connection>>,
    search: Search,
    /// Since when there is a client.
    served_since: Instant,
    /// By the library's own name of a session.
    offers: HashMap<u64, Offer>,
    joined: HashMap<u64, Joined>,
    own_inboxes: HashMap<u64, OwnInbox>,
    inboxes_seen: u64,
    peer_inboxes: HashMap<u64, (Arc<Inbox>, usize)>,
    peers: HashMap<u32, Peer>,
}

struct Joined {
    offer: Offer,
    slot: u32,
    stream: u64,
    /// The other side of a stream to another host, until this process carries it.
    other: Option<Stream>,
    side: u8,
    own_inbox: u64,
    own_slot: u32,
    peer_inbox: u64,
    peer_pid: u32,
}

/// The thread.
pub(crate) fn run(library: &'static Library, engine: &'static Engine) {
    let Some(mut thread) = Thread::new(library, engine) else {
        library.policy.forbid();
        return;
    };
    // Before the first session joins, off the program's threads: takes about a millisecond, once.
    sojourn_shm::wait::wake_cost_ns();
    thread.serve();
}

impl Thread {
    fn new(library: &'static Library, engine: &'static Engine) -> Option<Self> {
        let doorbell = engine.make_doorbell()?;
        let set = engine.keep(epoll::create(epoll::CreateFlags::CLOEXEC).ok()?);
        engine.watched.store(set.as_raw_fd(), Ordering::SeqCst);
        epoll::add(&set, doorbell, EventData::new_u64(DOORBELL), EventFlags::IN).ok()?;
        // What was left before there was a bell.
        engine.ring();
        Some(Self {
            library,
            engine,
            set,
            client: None,
            search: Search::new(),
            served_since: Instant::now(),
            offers: HashMap::new(),
            joined: HashMap::new(),
            own_inboxes: HashMap::new(),
            inboxes_seen: 0,
            peer_inboxes: HashMap::new(),
            peers: HashMap::new(),
        })
    }

    fn serve(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let limit = self.sleeps_for().and_then(|limit| limit.try_into().ok());
            let spare = rustix::buffer::spare_capacity(&mut events);
            // SYNC: pairs with the loads in `Engine::await_quiet`.
            self.engine.is_asleep.store(true, Ordering::SeqCst);
            let woken = epoll::wait(&self.set, spare, limit.as_ref());
            self.engine.is_asleep.store(false, Ordering::SeqCst);
            match woken {
                Ok(_) | Err(Errno::INTR) => {}
                // The set was closed under us: a program that closes what is not its own.
                Err(_) => {
                    self.library.all_home(ReasonT::Resources, true);
                    self.library.give_up_sets();
                    self.engine.stop_serving();
                    return;
                }
            }
            for event in &events {
                self.handle(event.data.u64());
            }
            self.engine.serve_board(self.library, self.joined.values().map(|joined| joined.slot));
            self.do_jobs();
            if !self.joined.is_empty() && lock(&self.engine.rings).look(self.library) {
                self.leave_for_rings();
            }
            if self.client.is_none() && !self.joined.is_empty() {
                self.connect();
            }
        }
    }

    /// How long nothing is to be done that nobody rings for. With live sessions, rings are looked for, and a server while there is none (`search`).
    fn sleeps_for(&self) -> Option<Duration> {
        if self.joined.is_empty() {
            return None;
        }
        let rings = lock(&self.engine.rings).left();
        Some(if self.client.is_none() { rings.min(self.search.left()) } else { rings })
    }

    /// There is a ring that nobody sees into. Peers are not waited for: what it waits for comes when they have left.
    fn leave_for_rings(&self) {
        for joined in self.joined.values() {
            if let Some(session) = self.engine.pool.session(joined.slot) {
                session.leave(ReasonT::Ring, false);
            }
        }
    }

    fn handle(&mut self, data: u64) {
        let rest = data & !WHAT;
        match data & WHAT {
            DOORBELL => {
                if let Some(doorbell) = self.engine.doorbell() {
                    let _ = rustix::io::read(doorbell, &mut [0; 8]);
                }
                self.take_events();
            }
            SERVER => self.lose_server(),
            SESSION => {
                if let Some(session) = self.engine.pool.session(rest as u32) {
                    session.kernel_stirred();
                }
            }
            PEER => self.peer_died(rest as u32),
            FLUSH => {
                if let Some(session) = self.engine.pool.session(rest as u32) {
                    session.room_came();
                }
            }
            _ => self.attend(rest),
        }
    }

    fn do_jobs(&mut self) {
        let mut left = Vec::new();
        // These and no more: what has gone home is let go of after them, and a busy program always has another.
        for job in self.engine.take_jobs() {
            match job {
                Job::Offer { fd, version, kind } => {
                    if let Some(offer) = self.library.prepare_offer(fd, version, kind) {
                        self.offer(offer);
                    } else if let Some(entry) = self.library.table.known(fd) {
                        entry.unmark(mark::OFFERED);
                    }
                }
                Job::Left { local, reason, sent, received, stream } => {
                    // What it was lent may have packets of it, and would not come any more.
                    self.await_lent(local);
                    self.unwatch(local, reason);
                    self.tell_left(local, reason, sent, received);
                    drop(stream);
                    left.push(local);
                }
                Job::Wanted { inode } => self.offer_wanted(inode),
                Job::Withdraw { fd } => self.withdraw(fd),
                Job::Flush { slot } => self.follow(slot),
                Job::AskWay { local, to } => self.ask_way(local, to),
                Job::Kept { fd, version } => self.tell_kept(fd, version),
            }
        }
        if !left.is_empty() {
            // Joins that the server has made before it heard of this may name what these sessions named.
            self.take_events();
            left.into_iter().for_each(|local| self.forget(local));
        }
    }

    /// A UDP socket goes home that the server may have begun to carry: what it lends then is waited for.
    fn await_lent(&mut self, local: u64) {
        let deadline = sojourn_shm::Deadline::after(LENT_LIMIT);
        let is_kept = |other: &Stream| other.ledger().keep() || other.ledger().is_kept();
        while self.client.is_some()
            && let Some(Joined { other: Some(other), offer, .. }) = self.joined.get(&local)
            && offer.kind == KindT::Udp
            && !is_kept(other)
            && !deadline.is_over()
        {
            // It is lent before that is told.
            let is_told = other.has_flushed();
            self.take_events();
            if is_told {
                return;
            }
            std::thread::sleep(LENT_SLICE);
        }
    }

    fn tell_left(&mut self, local: u64, reason: ReasonT, sent: u64, received: u64) {
        let Some(client) = &mut self.client else { return };
        fault::point("library.left");
        if client
            .with_deadline(Deadline::after(ANSWER_LIMIT))
            .left(local, reason, sent, received)
            .is_err()
        {
            self.lose_server();
        }
    }

    fn withdraw(&mut self, fd: i32) {
        let found: Vec<u64> = self
            .offers
            .iter()
            .filter(|(_, offer)| offer.fd == fd)
            .map(|(local, _)| *local)
            .collect();
        for local in found {
            self.offers.remove(&local);
            self.tell_left(local, ReasonT::Closed, 0, 0);
        }
    }

    fn offer(&mut self, offer: Offer) {
        if self.client.is_none() {
            self.connect();
        }
        let Ok(end) = kernel::at(offer.fd) else { return };
        let Some(client) = &mut self.client else {
            self.decline(&offer);
            return;
        };
        fault::point("library.offer");
        let deadline = Deadline::after(ANSWER_LIMIT);
        self.engine.offering.store(offer.fd, Ordering::SeqCst);
        let answer = client.with_deadline(deadline).offer(Some(end), &offer.what);
        self.engine.offering.store(-1, Ordering::SeqCst);
        match answer {
            Ok(_) => {
                fault::point("library.offered");
                self.offers.insert(offer.local, offer);
                self.take_events();
            }
            Err(rt::CallError::Fault(_)) => self.decline(&offer),
            Err(_) => {
                self.decline(&offer);
                self.lose_server();
            }
        }
    }

    /// The offer comes to nothing; it may be made again when the session has been hot for longer.
    fn decline(&self, offer: &Offer) {
        if let Some(entry) = self.library.table.known(offer.fd)
            && entry.version.load(Ordering::SeqCst) == offer.version
        {
            entry.unmark(mark::OFFERED);
            entry.was_refused();
        }
    }

    /// It will never move.
    fn fix(&self, offer: &Offer) {
        if let Some(entry) = self.library.table.known(offer.fd)
            && entry.version.load(Ordering::SeqCst) == offer.version
        {
            entry.keep(ReasonT::Kind);
            // It is the server that has said so.
            entry.unmark(mark::UNTOLD);
        }
    }

    fn take_events(&mut self) {
        loop {
            let Some(client) = &mut self.client else { return };
            match client.with_deadline(Deadline::after(ANSWER_LIMIT)).next() {
                Ok(EventT::Case0) => return,
                Ok(EventT::Join(join)) => self.join(&join),
                Ok(EventT::Recall(recall)) => {
                    if let Some(session) = self.session(recall.local) {
                        session.leave(recall.reason, false);
                    }
                }
                // In its turn: what has gone home before is to be forgotten first.
                Ok(EventT::Wanted(wanted)) => {
                    self.engine.push(self.library, Job::Wanted { inode: wanted.inode });
                }
                Ok(EventT::Lend(lent)) => self.carry(&lent),
                Ok(EventT::Rerouted(rerouted)) => {
                    if let (Some(session), Some(net)) =
                        (self.session(rerouted.local), self.library.net())
                    {
                        net.reroute(session.slot(), &rerouted.hop);
                    }
                }
                Ok(EventT::Way(way)) => {
                    if let (Some(session), Some(net)) =
                        (self.session(way.local), self.library.net())
                    {
                        net.set_way(session.slot(), &way);
                    }
                }
                Ok(EventT::Refused(refusal)) => {
                    if let Some(offer) = self.offers.remove(&refusal.local) {
                        if refusal.reason == ReasonT::Kind {
                            self.fix(&offer);
                        }
                        self.decline(&offer);
                    }
                }
                Err(_) => {
                    self.lose_server();
                    return;
                }
            }
        }
    }

    /// An administrator wants something away.
    fn offer_wanted(&mut self, inode: u64) {
        match self.library.wanted(inode) {
            Wanted::Offer(offers) => offers.into_iter().for_each(|offer| self.offer(offer)),
            Wanted::Done => {}
            Wanted::Not(reason) => {
                self.decline_inode(inode, reason);
            }
        }
    }

    /// A descriptor is kept in the kernel. What is kept before there is a server is told when there is one.
    fn tell_kept(&mut self, fd: i32, version: u32) {
        if self.client.is_none() {
            self.connect();
            return;
        }
        let known = self.library.table.known(fd);
        if known.is_some_and(|entry| entry.version.load(Ordering::SeqCst) == version)
            && let Some((inode, reason)) = self.library.kept(fd)
        {
            self.decline_inode(inode, reason);
        }
    }

    /// The server is told why something stays in the kernel.
    fn decline_inode(&mut self, inode: u64, reason: ReasonT) {
        let Some(client) = &mut self.client else { return };
        let limit = Deadline::after(ANSWER_LIMIT);
        if client.with_deadline(limit).declined(inode, reason).is_err() {
            self.lose_server();
        }
    }

    /// A session is this process's to carry.
    fn carry(&mut self, lent: &LendT) {
        let Some(session) = self.session(lent.local) else { return };
        let other = self.joined.get_mut(&lent.local).and_then(|joined| joined.other.take());
        // Without a connection for the way home it is not begun.
        let net = Net::start(self.library, self.engine)
            .filter(|net| net.has_server(self.library, self.engine));
        let begins = net.zip(other).is_some_and(|(net, other)| match session.is_datagram() {
            true => net.begin_datagrams(self.engine, session, other, lent),
            false => net.begin(self.engine, session, other, lent),
        });
        // Called home before it was here: whoever did may not have found it.
        let is_called_home = session.stream().is_some_and(|stream| stream.is_frozen());
        if !begins || is_called_home {
            session.leave(ReasonT::Resources, false);
        }
    }

    fn ask_way(&mut self, local: u64, to: IpAddr) {
        let Some(client) = &mut self.client else { return };
        let to = match to {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let place = WhereT { local, to: to.octets() };
        if client.with_deadline(Deadline::after(ANSWER_LIMIT)).ask_way(&place).is_err() {
            self.lose_server();
        }
    }

    fn session(&self, local: u64) -> Option<&'static Session> {
        self.engine.pool.session(self.joined.get(&local)?.slot)
    }

    fn peer_died(&mut self, pid: u32) {
        let of_peer: Vec<u32> = self
            .joined
            .values()
            .filter(|joined| joined.peer_pid == pid)
            .map(|joined| joined.slot)
            .collect();
        if let Some(peer) = self.peers.get(&pid) {
            let _ = epoll::delete(&self.set, &peer.process);
        }
        for slot in of_peer {
            if let Some(session) = self.engine.pool.session(slot) {
                session.leave(ReasonT::PeerDied, false);
            }
        }
    }

    fn attend(&mut self, number: u64) {
        let found = self.own_inboxes.values().find(|inbox| inbox.number == number);
        let Some(inbox) = found else { return };
        let mut slots = Vec::new();
        inbox.inbox.take_attention(&mut |slot| slots.extend(inbox.slots.get(&slot).copied()));
        for slot in slots {
            if let Some(session) = self.engine.pool.session(slot) {
                session.attend();
            }
        }
    }
}
