//! The protocol thread: talks to the server, watches peers and the kernel's descriptors of sessions that are away.
//!
//! It starts with the first hot session, sleeps in one `epoll_wait`, and never touches data. When the server is
//! gone it looks for a new one now and then, as long as sessions are away. Not here: what joining and going
//! home mean (`join`, `home`). Read `docs/streams.md` first.

use crate::engine::{Engine, Job};
use crate::environment::Kept;
use crate::join::{self, Parts};
use crate::offer::Offer;
use crate::search::Search;
use crate::table::mark;
use crate::{Library, Session, kernel};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sojourn_ipc::rt;
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_session::place::Surroundings;
use sojourn_session::{EventT, InboxT, JoinT, ReasonT, SessionClient, session_connect_options};
use sojourn_shm::{Access, Segment, fault};
use sojourn_stream::Inbox;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// How long the server may take for an answer before it counts as gone.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
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
        let set = engine.keep(epoll::create(epoll::CreateFlags::CLOEXEC).ok()?);
        engine.watched.store(set.as_raw_fd(), Ordering::SeqCst);
        let doorbell = engine.doorbell.as_ref()?;
        epoll::add(&set, doorbell, EventData::new_u64(DOORBELL), EventFlags::IN).ok()?;
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
            // Without a server, live sessions look for one (`search`); without sessions nobody does.
            let looks = self.client.is_none() && !self.joined.is_empty();
            let limit = looks.then(|| self.search.left()).and_then(|limit| limit.try_into().ok());
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.set, spare, limit.as_ref()) {
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
            if self.client.is_none() && !self.joined.is_empty() {
                self.connect();
            }
        }
    }

    fn handle(&mut self, data: u64) {
        let rest = data & !WHAT;
        match data & WHAT {
            DOORBELL => {
                if let Some(doorbell) = &self.engine.doorbell {
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
        while let Some(job) = self.engine.take_job() {
            match job {
                Job::Offer { fd, version, kind } => {
                    if let Some(offer) = self.library.prepare_offer(fd, version, kind) {
                        self.offer(offer);
                    } else if let Some(entry) = self.library.table.known(fd) {
                        entry.unmark(mark::OFFERED);
                    }
                }
                Job::Left { local, reason, sent, received } => {
                    self.unwatch(local, reason);
                    self.tell_left(local, reason, sent, received);
                    left.push(local);
                }
                Job::Withdraw { fd } => self.withdraw(fd),
                Job::Flush { slot } => self.follow(slot),
            }
        }
        if !left.is_empty() {
            // Joins that the server has made before it heard of this may name what these sessions named.
            self.take_events();
            left.into_iter().for_each(|local| self.forget(local));
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
        match client.with_deadline(deadline).offer(Some(end), &offer.what) {
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

    /// The offer comes to nothing; it may be made again when the session is hot again.
    fn decline(&self, offer: &Offer) {
        if let Some(entry) = self.library.table.known(offer.fd)
            && entry.version.load(Ordering::SeqCst) == offer.version
        {
            entry.unmark(mark::OFFERED);
            entry.cool();
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
                Ok(EventT::Refused(refusal)) => {
                    if let Some(offer) = self.offers.remove(&refusal.local) {
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

    fn session(&self, local: u64) -> Option<&'static Session> {
        self.engine.pool.session(self.joined.get(&local)?.slot)
    }

    fn join(&mut self, join: &JoinT) {
        fault::point("library.join");
        let Some(offer) = self.offers.remove(&join.local) else {
            self.tell_left(join.local, ReasonT::Closed, 0, 0);
            return;
        };
        if let Err(reason) = self.try_join(&offer, join) {
            self.decline(&offer);
            self.tell_left(join.local, reason, 0, 0);
            self.release(join.own.id, join.peer.id, join.peer_pid);
        }
    }

    fn try_join(&mut self, offer: &Offer, join: &JoinT) -> Result<(), ReasonT> {
        let own_inbox = self.own_inbox(&join.own)?;
        let peer_inbox = self.peer_inbox(&join.peer)?;
        let stream = join::map(join, peer_inbox).map_err(|_| ReasonT::Resources)?;
        let parts = Parts { stream: Arc::new(stream), own_inbox, own_slot: join.own.slot };
        self.watch_peer(join)?;
        let session = self.library.join(self.engine, offer, join, &parts)?;
        if let Some(inbox) = self.own_inboxes.get_mut(&join.own.id) {
            inbox.slots.insert(join.own.slot, session.slot());
            inbox.uses += 1;
        }
        if let Some((_, uses)) = self.peer_inboxes.get_mut(&join.peer.id) {
            *uses += 1;
        }
        if let Some(peer) = self.peers.get_mut(&join.peer_pid) {
            peer.sessions += 1;
        }
        let joined = Joined {
            offer: offer.clone(),
            slot: session.slot(),
            stream: join.stream,
            side: join.side,
            own_inbox: join.own.id,
            own_slot: join.own.slot,
            peer_inbox: join.peer.id,
            peer_pid: join.peer_pid,
        };
        self.joined.insert(offer.local, joined);
        self.watch_descriptor(offer.fd, session.slot());
        // What stirred before it was watched is looked at once.
        session.kernel_stirred();
        fault::point("library.joined");
        Ok(())
    }

    /// Goes on with a session's flush whenever there is room.
    fn follow(&self, slot: u32) {
        let Some(session) = self.engine.pool.session(slot) else { return };
        if !session.is_flushing.load(Ordering::SeqCst) {
            return;
        }
        let data = EventData::new_u64(FLUSH | u64::from(slot));
        if let Ok(fd) = kernel::at(session.number()) {
            let _ = epoll::add(&self.set, fd, data, EventFlags::OUT | EventFlags::ET);
        }
        // There may have been room before that.
        session.room_came();
    }

    fn watch_descriptor(&self, fd: i32, slot: u32) {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(SESSION | u64::from(slot));
        if let Ok(fd) = kernel::at(fd)
            && epoll::add(&self.set, fd, data, flags) == Err(Errno::EXIST)
        {
            let _ = epoll::modify(&self.set, fd, data, flags);
        }
    }

    fn own_inbox(&mut self, inbox: &InboxT) -> Result<Arc<Inbox>, ReasonT> {
        if let Some(known) = self.own_inboxes.get(&inbox.id) {
            return Ok(Arc::clone(&known.inbox));
        }
        let opened = Arc::new(self.open_inbox(inbox).ok_or(ReasonT::Resources)?);
        self.inboxes_seen += 1;
        let number = self.inboxes_seen;
        let data = EventData::new_u64(INBOX | number);
        epoll::add(&self.set, opened.attention_fd(), data, EventFlags::IN)
            .map_err(|_| ReasonT::Resources)?;
        let known = OwnInbox { number, inbox: Arc::clone(&opened), slots: HashMap::new(), uses: 0 };
        self.own_inboxes.insert(inbox.id, known);
        Ok(opened)
    }

    fn peer_inbox(&mut self, inbox: &InboxT) -> Result<Arc<Inbox>, ReasonT> {
        if let Some((known, _)) = self.peer_inboxes.get(&inbox.id) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(self.open_inbox(inbox).ok_or(ReasonT::Resources)?);
        self.peer_inboxes.insert(inbox.id, (Arc::clone(&opened), 0));
        Ok(opened)
    }

    fn open_inbox(&self, inbox: &InboxT) -> Option<Inbox> {
        let own = |fd: &rt::Descriptor| fd.clone().into_owned().ok().flatten();
        let segment = Segment::accept(own(&inbox.memory)?, Inbox::LEN).ok()?;
        let mapping = segment.map(Access::ReadWrite).ok()?;
        let ready = self.engine.keep(own(&inbox.ready)?);
        let attention = self.engine.keep(own(&inbox.attention)?);
        Inbox::new(mapping, ready, attention)
    }

    fn watch_peer(&mut self, join: &JoinT) -> Result<(), ReasonT> {
        if self.peers.contains_key(&join.peer_pid) {
            return Ok(());
        }
        let process =
            join.peer_process.clone().into_owned().ok().flatten().ok_or(ReasonT::Resources)?;
        let process = self.engine.keep(process);
        let data = EventData::new_u64(PEER | u64::from(join.peer_pid));
        epoll::add(&self.set, &process, data, EventFlags::IN).map_err(|_| ReasonT::Resources)?;
        self.peers.insert(join.peer_pid, Peer { process, sessions: 0 });
        Ok(())
    }

    /// A session's descriptor is the kernel's alone again, and its slot in the inbox may soon be another's.
    fn unwatch(&mut self, local: u64, reason: ReasonT) {
        let Some(joined) = self.joined.get(&local) else { return };
        // Before a close that has been done: see `Session::close`.
        if reason != ReasonT::Closed
            && let Ok(fd) = kernel::at(joined.offer.fd)
        {
            let _ = epoll::delete(&self.set, fd);
        }
        if let Some(inbox) = self.own_inboxes.get_mut(&joined.own_inbox) {
            inbox.slots.remove(&joined.own_slot);
        }
    }

    /// The server knows that a session has gone home: what only it needed is let go of.
    fn forget(&mut self, local: u64) {
        let Some(joined) = self.joined.remove(&local) else { return };
        if let Some(inbox) = self.own_inboxes.get_mut(&joined.own_inbox) {
            inbox.uses -= 1;
        }
        if let Some((_, uses)) = self.peer_inboxes.get_mut(&joined.peer_inbox) {
            *uses -= 1;
        }
        if let Some(peer) = self.peers.get_mut(&joined.peer_pid) {
            peer.sessions -= 1;
        }
        self.release(joined.own_inbox, joined.peer_inbox, joined.peer_pid);
    }

    /// Lets go of those that no session needs. The server counts in the same way, and gives others next time.
    fn release(&mut self, own_inbox: u64, peer_inbox: u64, peer_pid: u32) {
        if self.own_inboxes.get(&own_inbox).is_some_and(|inbox| inbox.uses == 0)
            && let Some(OwnInbox { inbox, .. }) = self.own_inboxes.remove(&own_inbox)
        {
            let _ = epoll::delete(&self.set, inbox.attention_fd());
            self.engine.release(inbox.ready_fd());
            self.engine.release(inbox.attention_fd());
        }
        if self.peer_inboxes.get(&peer_inbox).is_some_and(|(_, uses)| *uses == 0)
            && let Some((inbox, _)) = self.peer_inboxes.remove(&peer_inbox)
        {
            self.engine.release(inbox.ready_fd());
            self.engine.release(inbox.attention_fd());
        }
        if self.peers.get(&peer_pid).is_some_and(|peer| peer.sessions == 0)
            && let Some(peer) = self.peers.remove(&peer_pid)
        {
            // Closing does not take it out: the server has the same open file. And it would be in the way when
            // the peer comes again under this number.
            let _ = epoll::delete(&self.set, &peer.process);
            self.engine.release(peer.process.as_fd());
        }
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

    /// Looks for a server, if it is time for that.
    fn connect(&mut self) {
        if !self.search.begins_attempt() {
            return;
        }
        let Some(mut client) = self.open_client() else { return };
        let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let program = std::ffi::CString::new(program.trim_end()).unwrap_or_default();
        let Some(doorbell) = &self.engine.doorbell else { return };
        let deadline = Deadline::after(ANSWER_LIMIT);
        if client.with_deadline(deadline).hello(&program, Some(doorbell.as_fd())).is_err() {
            return;
        }
        self.client = Some(client);
        self.served_since = Instant::now();
        self.adopt_all();
    }

    fn open_client(&self) -> Option<SessionClient<Connection>> {
        let policy = &self.library.policy;
        let mut around = Surroundings::of_this_process(&policy.config().server);
        if let Some(runtime) = policy.environment.get().and_then(Kept::runtime) {
            around.runtime = Some(runtime);
        }
        let place = around.for_client().ok()?;
        let address = Address::parse(&place).ok()?.socket_address()?;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .ok()?;
        rustix::net::connect(&socket, &address).ok()?;
        let socket = self.engine.keep(socket);
        let data = EventData::new_u64(SERVER);
        epoll::add(&self.set, &socket, data, EventFlags::RDHUP | EventFlags::ET).ok()?;
        let mut options = session_connect_options();
        options.wait = sojourn_ipc::Wait::Park;
        options.timeout = ANSWER_LIMIT;
        let connection = Connection::connect(Address::Descriptor(socket), &options).ok()?;
        SessionClient::bind_by(connection, Deadline::after(ANSWER_LIMIT)).ok()
    }

    /// A new server learns of the sessions that are away.
    fn adopt_all(&mut self) {
        let Some(client) = &mut self.client else { return };
        for joined in self.joined.values() {
            let Ok(end) = kernel::at(joined.offer.fd) else { continue };
            let deadline = Deadline::after(ANSWER_LIMIT);
            let what = &joined.offer.what;
            // What the server does not want to know changes nothing for the session.
            let _ =
                client.with_deadline(deadline).adopt(Some(end), what, joined.stream, joined.side);
        }
    }

    fn lose_server(&mut self) {
        let Some(client) = self.client.take() else { return };
        drop(client);
        self.search.lost(self.served_since.elapsed());
        for (_, offer) in std::mem::take(&mut self.offers) {
            self.decline(&offer);
        }
    }
}
