//! The work of the control thread: accepts clients, greets them, reads their packets.
//!
//! # Theory of operation
//! A new socket waits in the lobby until its greeting comes or its time limit passes. The greeting
//! gives the client's version and wishes; the answer carries a region, or the reason of a refusal.
//! From then on the socket belongs to a link, and [`ClientLink::drain`] reads its packets. All
//! sockets are in one epoll set; this thread waits nowhere else.

use crate::ancillary;
use crate::control::{self, GREETING, Packet, Received, Topic, WHOLE};
use crate::deadline::now_ns;
use crate::fault;
use crate::layout::{Layout, NewRegion, Region};
use crate::link::ServerThread;
use crate::link::{ClientLink, Terms};
use crate::lock::lock;
use crate::options::{Clients, ServerOptions};
use crate::proxy::ClientSocket;
use crate::rt::Reason;
use crate::rt::{ClientId, Credentials};
use crate::shared::{Control, GuestId, Offered, Shared, Watched};
use crate::thread::Note;
use core::sync::atomic::Ordering;
use rustix::event::epoll::{self, Event};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::Uid;
use rustix::time::Timespec;
use std::collections::HashMap;
use std::sync::Arc;

/// The time limit for a client's greeting.
const GREET_NS: u64 = 5_000_000_000;
/// The number of clients that may wait in the lobby; when it is full, one of them is dismissed for
/// the next.
const LOBBY_MAX: usize = 256;
/// The pause of accepting when descriptors have run out.
const PAUSE_NS: u64 = 100_000_000;

/// A socket that has not greeted yet.
#[derive(Debug)]
struct Guest {
    socket: ClientSocket,
    until_ns: u64,
    /// The user that connected, or, for an offered socket, the user that offered it.
    user: Uid,
    /// True if [`crate::Endpoint::offer`] made the socket: the greeting's credentials then identify
    /// the client.
    is_offered: bool,
}

/// A client that greeted.
#[derive(Debug)]
struct GreetedClient {
    socket: ClientSocket,
    hello: Packet,
    credentials: Credentials,
}

/// A client that gets no link.
struct Refusal {
    socket: ClientSocket,
    reason: Reason,
}

/// The control thread's state.
pub(crate) struct Lobby {
    shared: Arc<Shared>,
    control: Arc<Control>,
    guests: HashMap<GuestId, Guest>,
    next_guest: GuestId,
    /// Clients that greeted while there was no server thread.
    waiting: Vec<GreetedClient>,
    /// The end of a pause of accepting.
    paused_until_ns: Option<u64>,
    is_over: bool,
}

impl Lobby {
    pub(crate) fn new(shared: Arc<Shared>, control: Arc<Control>) -> Self {
        Self {
            shared,
            control,
            guests: HashMap::new(),
            next_guest: GuestId::default(),
            waiting: Vec::new(),
            paused_until_ns: None,
            is_over: false,
        }
    }

    /// Runs until the endpoint closes.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.is_over {
            events.clear();
            let timeout = self.timeout();
            let space = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.control.epoll, space, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
            for event in &events {
                self.handle(*event);
            }
            self.expire();
        }
        self.close();
    }

    fn timeout(&self) -> Option<Timespec> {
        let guests = self.guests.values().map(|guest| guest.until_ns);
        let next = guests.chain(self.paused_until_ns).min()?;
        let left = next.saturating_sub(now_ns());
        Some(Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        })
    }

    fn handle(&mut self, event: Event) {
        match Watched::of(event) {
            Watched::Listener => self.accept(),
            Watched::Signal => self.signal(),
            Watched::Guest(guest) => self.greeting(guest),
            Watched::Client(id) => self.packet(id),
        }
    }

    fn signal(&mut self) {
        self.control.clear_signal();
        self.is_over = self.shared.is_closing();
        for offered in self.control.take_offered() {
            match offered {
                Offered::Pair(socket) => self.enter(socket, true),
                Offered::Accepted(socket) => self.enter(socket, false),
            }
        }
        if !lock(&self.shared.threads).is_empty() {
            for greeted in core::mem::take(&mut self.waiting) {
                self.admit(greeted);
            }
        }
    }

    fn accept(&mut self) {
        let control = Arc::clone(&self.control);
        let Some(listener) = control.listener() else { return };
        // The number of clients accepted at a time is limited, so that present clients have their
        // turn.
        for _ in 0..LOBBY_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(listener, flags) {
                Ok(socket) => self.enter(socket, false),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                // The process is out of descriptors or memory: clients wait in the backlog until
                // some are free.
                Err(_) => return self.pause(listener),
            }
        }
    }

    fn pause(&mut self, listener: &OwnedFd) {
        let _ = epoll::delete(&self.control.epoll, listener);
        self.paused_until_ns = Some(now_ns() + PAUSE_NS);
    }

    fn enter(&mut self, socket: OwnedFd, is_offered: bool) {
        if self.guests.len() >= LOBBY_MAX {
            self.make_room();
        }
        let nobody = Uid::from_raw_unchecked(u32::MAX);
        let user = ancillary::peer(socket.as_fd()).map_or(nobody, |who| who.user());
        // An offered socket was made by the server itself, so no proxy shares it.
        let shared = match self.control.proxies.as_ref().filter(|_| !is_offered) {
            Some(proxies) => proxies.share(socket, user),
            None => Some(socket.into()),
        };
        let Some(socket) = shared else { return };
        let id = self.next_guest;
        self.next_guest = id.next();
        if self.control.watch(&socket, Watched::Guest(id)).is_ok() {
            let until_ns = now_ns() + GREET_NS;
            self.guests.insert(id, Guest { socket, until_ns, user, is_offered });
        }
    }

    /// Dismisses the guest that has waited longest among those of the user that has most guests.
    /// Honest clients greet at once, and many sockets of one user do not displace another user's.
    fn make_room(&mut self) {
        let mut crowds: HashMap<Uid, usize> = HashMap::new();
        for guest in self.guests.values() {
            *crowds.entry(guest.user).or_default() += 1;
        }
        let rank = |guest: &Guest| {
            (crowds.get(&guest.user).copied().unwrap_or(0), core::cmp::Reverse(guest.until_ns))
        };
        let last = self.guests.iter().max_by_key(|(_, guest)| rank(guest)).map(|(id, _)| *id);
        if let Some(guest) = last.and_then(|last| self.guests.remove(&last)) {
            self.dismiss(&guest);
        }
    }

    fn expire(&mut self) {
        if self.guests.is_empty() && self.paused_until_ns.is_none() {
            return;
        }
        let now = now_ns();
        let late = self.guests.iter().filter(|(_, guest)| guest.until_ns <= now);
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(guest) = self.guests.remove(&id) {
                self.dismiss(&guest);
            }
        }
        if self.paused_until_ns.is_some_and(|until| until <= now) {
            self.paused_until_ns = None;
            if let Some(listener) = self.control.listener() {
                let _ = self.control.watch(listener, Watched::Listener);
            }
        }
    }

    /// Removes the socket from the epoll set explicitly, because a socket that a proxy shares stays
    /// in the set while the proxy has it (epoll(7)).
    fn dismiss(&self, guest: &Guest) {
        let _ = epoll::delete(&self.control.epoll, &guest.socket);
    }

    fn greeting(&mut self, id: GuestId) {
        fault::point("server.greeting");
        let Some(guest) = self.guests.get(&id) else { return };
        let received = guest.socket.receive();
        if matches!(received, Received::Empty) {
            return;
        }
        let Some(guest) = self.guests.remove(&id) else { return };
        self.dismiss(&guest);
        match received {
            Received::Packet { packet: hello, fds, sender, .. }
                if hello.topic == Topic::Hello && hello.a == GREETING && fds.is_empty() =>
            {
                let credentials = if guest.is_offered {
                    sender
                } else {
                    ancillary::peer(guest.socket.as_fd()).ok()
                };
                let Some(credentials) = credentials else {
                    return refuse(&guest.socket, Reason::BadPacket);
                };
                self.greeted(GreetedClient { socket: guest.socket, hello, credentials });
            }
            Received::Ended => {}
            _ => refuse(&guest.socket, Reason::Version),
        }
    }

    fn greeted(&mut self, greeted: GreetedClient) {
        if self.has_too_many(greeted.credentials.user()) {
            return refuse(&greeted.socket, Reason::TooManyOfUser);
        }
        if !lock(&self.shared.threads).is_empty() {
            return self.admit(greeted);
        }
        match self.waiting.len() < self.shared.options.max_clients as usize {
            true => self.waiting.push(greeted),
            false => refuse(&greeted.socket, Reason::TooManyClients),
        }
    }

    /// Returns true if a user has as many clients as allowed, counting served and waiting ones.
    fn has_too_many(&self, user: Uid) -> bool {
        let is_theirs = |who: &Credentials| who.user() == user;
        let links = lock(&self.shared.links);
        let served = links.iter().filter_map(|slot| slot.link.as_ref());
        let (mut all, mut theirs) = (self.waiting.len(), 0);
        for link in served {
            all += 1;
            theirs += usize::from(is_theirs(&link.credentials));
        }
        drop(links);
        theirs += self.waiting.iter().filter(|guest| is_theirs(&guest.credentials)).count();
        let own = self.shared.options.own_user.unwrap_or_else(rustix::process::geteuid);
        self.shared.options.is_full_for(user, own, Clients { theirs, all })
    }

    /// Gives a client that greeted its region and its thread.
    fn admit(&mut self, greeted: GreetedClient) {
        let socket = &greeted.socket;
        let Some(thread) = self.least_busy() else { return refuse(socket, Reason::Closed) };
        let Some(id) = self.free_index() else { return refuse(socket, Reason::TooManyClients) };
        let link = match self.link(greeted, id, thread) {
            Ok(link) => link,
            Err(Refusal { socket, reason }) => return refuse(&socket, reason),
        };
        link.thread.clients.fetch_add(1, Ordering::Relaxed);
        fault::point("server.welcomed");
        link.thread.post(Note::Joined(Arc::clone(&link)));
        if link.thread.is_closed.load(Ordering::Acquire) {
            link.end(Reason::Closed);
            // The thread does not read these notes any more, and one of them holds the link.
            while link.thread.take().is_some() {}
        }
    }

    fn least_busy(&self) -> Option<Arc<ServerThread>> {
        let mut threads = lock(&self.shared.threads);
        threads.retain(|thread| !thread.is_closed.load(Ordering::Acquire));
        threads.iter().min_by_key(|thread| thread.clients.load(Ordering::Relaxed)).cloned()
    }

    /// Returns an unused index with its next generation.
    fn free_index(&self) -> Option<ClientId> {
        let mut links = lock(&self.shared.links);
        let index = match links.iter().position(|slot| slot.link.is_none()) {
            Some(index) => index,
            None if links.len() < self.shared.options.max_clients as usize => {
                links.push(Default::default());
                links.len() - 1
            }
            None => return None,
        };
        let slot = links.get_mut(index)?;
        // Generations stay below the bit that marks guests, see `Watched`.
        slot.generation = slot.generation % 0x3fff_ffff + 1;
        Some(ClientId { index: index as u32, generation: slot.generation })
    }

    /// Creates the link and sends the welcome.
    fn link(
        &self,
        greeted: GreetedClient,
        id: ClientId,
        thread: Arc<ServerThread>,
    ) -> Result<Arc<ClientLink>, Refusal> {
        let options = &self.shared.options;
        let GreetedClient { socket, hello, credentials } = greeted;
        let layout = layout(options, hello);
        let _ = rustix::net::sockopt::set_socket_passcred(&socket, false);
        let Ok(NewRegion { segment, region }) = Region::create(layout) else {
            return Err(Refusal { socket, reason: Reason::NoResources });
        };
        let mut welcome = Packet::new(Topic::Welcome, id.index);
        welcome.a = u64::from(id.generation) | u64::from(layout.slots) << 32;
        welcome.b = layout.area as u64 | if options.items_in_place { WHOLE } else { 0 };
        welcome.c = options.max_message;
        welcome.d = self.shared.id.0;
        let terms = Terms {
            id,
            // A reused process number gives a client no access: direct calls use objects in this
            // process's memory, which another process cannot reach.
            same_space: credentials.pid.cast_unsigned() == std::process::id(),
            credentials,
            reply_max: hello.c,
            request_max: options.max_message,
            items_in_place: options.items_in_place,
            budget: self.shared.budget.clone(),
        };
        if self.control.watch(&socket, Watched::Client(id)).is_err() {
            return Err(Refusal { socket, reason: Reason::NoResources });
        }
        let link = Arc::new(ClientLink::new(terms, region, socket, thread));
        fault::point("server.region");
        // The link is entered before the welcome is sent, because a client in this address space
        // looks it up at once.
        self.set_link(id, Some(Arc::clone(&link)));
        if control::send(link.socket.as_fd(), welcome, &[segment.as_fd()]).is_err() {
            // The client hung up, or the kernel has no room for a descriptor; the socket shows the
            // former.
            link.end(Reason::NoResources);
        }
        Ok(link)
    }

    fn set_link(&self, id: ClientId, link: Option<Arc<ClientLink>>) {
        if let Some(slot) = lock(&self.shared.links).get_mut(id.index as usize) {
            slot.link = link;
        }
    }

    /// Handles packets on a client's socket, or its hang-up.
    fn packet(&mut self, id: ClientId) {
        let Some(link) = self.shared.link(id) else { return };
        link.drain();
        if link.ended().is_some() {
            let _ = epoll::delete(&self.control.epoll, &link.socket);
            self.set_link(id, None);
        }
    }

    fn close(&mut self) {
        for greeted in self.waiting.drain(..) {
            refuse(&greeted.socket, Reason::Closed);
        }
        for slot in lock(&self.shared.links).iter_mut() {
            if let Some(link) = slot.link.take() {
                link.end(Reason::Closed);
            }
        }
        for thread in lock(&self.shared.threads).iter() {
            thread.close();
        }
    }
}

/// Returns the layout for the client's wishes, within the server's limits.
fn layout(options: &ServerOptions, hello: Packet) -> Layout {
    let inflight = match hello.b as u32 {
        0 => options.max_inflight,
        wanted => wanted.min(options.max_inflight),
    };
    let payload = match hello.b >> 32 {
        0 => options.area,
        wanted => wanted.min(options.area),
    };
    Layout::new(inflight, payload)
}

fn refuse(socket: &ClientSocket, reason: Reason) {
    let _ = control::send(socket.as_fd(), Packet::new(Topic::Refused, reason.code()), &[]);
}
