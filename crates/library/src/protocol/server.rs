//! The protocol thread's connection with the server: found, greeted, told of what is away, lost.
//!
//! Not here: what is said over it (`super`), how often a server is looked for (`crate::search`).

use super::{ANSWER_LIMIT, Thread};
use crate::environment::Kept;
use crate::search::Search;
use crate::{Library, kernel};
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline};
use sojourn_session::place::Surroundings;
use sojourn_session::{CarryClient, ReasonT, carry_connect_options};
use std::time::Instant;

/// A connection for sessions that are given back: for any thread.
pub(crate) fn open_carry_client(library: &Library) -> Option<CarryClient<Connection>> {
    let socket = open_socket(library)?;
    let connection = open_connection(socket, carry_connect_options())?;
    CarryClient::bind_by(connection, Deadline::after(ANSWER_LIMIT)).ok()
}

pub(super) fn open_connection(socket: OwnedFd, mut options: ConnectOptions) -> Option<Connection> {
    options.wait = sojourn_ipc::Wait::Park;
    options.timeout = ANSWER_LIMIT;
    Connection::connect(Address::Descriptor(socket), &options).ok()
}

/// A socket that is connected to the server.
fn open_socket(library: &Library) -> Option<OwnedFd> {
    let policy = &library.policy;
    let mut around = Surroundings::of_this_process(&policy.config().server);
    if let Some(runtime) = policy.environment.get().and_then(Kept::runtime) {
        around.runtime = Some(runtime);
    }
    let place = around.for_client().ok()?;
    let address = Address::parse(&place).ok()?.socket_address()?;
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket)
}

impl Thread {
    /// Looks for a server, if it is time for that.
    pub(super) fn connect(&mut self) {
        if !self.search.begins_attempt() {
            return;
        }
        let library = self.library;
        let greeted = self.aside.call(|outside| outside.greet(open_socket(library)?));
        if greeted.flatten().is_none() {
            return;
        }
        self.has_client = true;
        self.engine.set_served(true);
        if let Some(net) = self.library.net() {
            net.is_alone.store(false, Ordering::SeqCst);
        }
        self.served_since = Instant::now();
        self.adopt_all();
        self.tell_all_kept();
    }

    /// The program is about to do what makes this impossible later; see [`crate::prepare`].
    pub(super) fn prepare(&mut self) {
        if !self.has_client {
            // However often there was none before.
            self.search = Search::new();
            self.connect();
        }
        self.engine.has_prepared();
    }

    /// A new server learns what of this process stays in the kernel.
    fn tell_all_kept(&mut self) {
        let kept: Vec<i32> = self.library.table.kept().collect();
        for fd in kept {
            if let Some((inode, reason)) = self.library.kept(fd) {
                self.decline_inode(inode, reason, self.library.figures(fd, reason));
            }
        }
    }

    /// A new server learns of the sessions that are away.
    fn adopt_all(&mut self) {
        let mut unknown = Vec::new();
        let all: Vec<_> = self
            .joined
            .values()
            .map(|one| (one.offer.fd, one.offer.what, one.stream, one.side, one.slot))
            .collect();
        for (fd, what, stream, side, slot) in all {
            let Ok(end) = kernel::at(fd) else { continue };
            // What the server does not want to know changes nothing for a stream.
            let told = self.with_descriptor(end, |outside| {
                let end = outside.take_passed()?;
                let client = outside.client.as_mut()?;
                let deadline = Deadline::after(ANSWER_LIMIT);
                client.with_deadline(deadline).adopt(Some(end.as_fd()), &what, stream, side).ok()
            });
            if told == Some(Some(false)) {
                unknown.extend(self.engine.pool.session(slot));
            }
        }
        // Of a UDP socket's datagrams it has given to the kernel what it found.
        for session in unknown.into_iter().filter(|session| session.is_datagram()) {
            session.leave(ReasonT::PeerDied, false);
        }
    }

    pub(super) fn lose_server(&mut self) {
        if !core::mem::take(&mut self.has_client) {
            return;
        }
        self.engine.set_served(false);
        self.aside.call(|outside| outside.client = None);
        // Those that it had begun to carry wait for the next one; those that it had not taken out
        // are the kernel's still.
        let slots: Vec<u32> = self.joined.values().map(|joined| joined.slot).collect();
        for session in slots.into_iter().filter_map(|slot| self.engine.pool.session(slot)) {
            session.carrier_is_lost();
        }
        self.search.lost(self.served_since.elapsed());
        for (_, offer) in std::mem::take(&mut self.offers) {
            self.decline(&offer);
        }
    }
}
