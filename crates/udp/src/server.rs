//! The server object: the operations of the interface, and the receiving threads.
//!
//! # Theory of operation
//! Serving threads take requests from clients; each port has a receiving thread, which takes
//! packets from the kernel. No thread waits for another: a thread with a datagram puts it into the
//! port's inbox, and so into the message of a waiting receiver. The port's lock is the only one on
//! this way. Ports are found by number, and clients' ports by client, without a lock. A client that
//! goes takes its port along.

use crate::inbox::{Datagram, Inbox};
use crate::network::Network;
use crate::packet;
use crate::port::{Call, Handler, Owner, Port};
use crate::stubs::server::{
    EndpointT, UdpBindOut, UdpRecvfromDeferredReply, UdpServer, udp_server_options,
};
use arc_swap::{ArcSwapOption, Guard};
use core::net::{Ipv4Addr, SocketAddrV4};
use sojourn_ipc::{ClientId, rt};
use std::io::{self, Error};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of clients at a time.
const CLIENTS_MAX: u32 = 256;
/// Number of port numbers.
const PORTS: usize = 1 << 16;
/// The file with the first port for which no privilege is needed (ip(7)).
const UNPRIVILEGED: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

type Ports = Box<[ArcSwapOption<Port>]>;

/// The server of UDP.
#[derive(Debug)]
pub struct Udp {
    /// The ports, by port number.
    ports: Ports,
    /// The ports of clients, by the client's index.
    clients: Ports,
    /// Held while a port is taken or given up, but never on the way of a datagram.
    binding: Mutex<()>,
    /// True if receiving threads never sleep.
    spins: bool,
}

impl Udp {
    /// Makes a server without ports. Its receiving threads spin if `spins`.
    pub fn new(spins: bool) -> Self {
        let ports = |count| (0..count).map(|_| ArcSwapOption::empty()).collect();
        let (ports, clients) = (ports(PORTS), ports(CLIENTS_MAX as usize));
        Self { ports, clients, binding: Mutex::new(()), spins }
    }

    /// Returns the options for an endpoint of this server.
    pub fn options() -> sojourn_ipc::ServerOptions {
        sojourn_ipc::ServerOptions { max_clients: CLIENTS_MAX, ..udp_server_options() }
    }

    /// Returns true if no port is taken.
    #[cfg(any(debug_assertions, fuzzing))]
    pub(crate) fn is_empty(&self) -> bool {
        self.ports.iter().chain(&self.clients).all(|place| place.load().is_none())
    }

    /// Takes a port for a program in this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_here(&self, local: SocketAddrV4, handler: Handler) -> io::Result<Arc<Port>> {
        let _binding = self.lock();
        self.open(local, Owner::Here(handler))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller holds `binding`.
    fn open(&self, local: SocketAddrV4, owner: Owner) -> io::Result<Arc<Port>> {
        let port = Arc::new(Port { network: Network::open(local, self.spins)?, owner });
        let number = port.local().port();
        let place = &self.ports[usize::from(number)];
        // The kernel allows one port number for each address, this server only one in all.
        if place.load().is_some() {
            return Err(Error::from_raw_os_error(libc::EADDRINUSE));
        }
        let receiver = Arc::clone(&port);
        let thread = std::thread::Builder::new().name(format!("port {number}"));
        thread.spawn(move || receive(&receiver))?;
        place.store(Some(Arc::clone(&port)));
        Ok(port)
    }

    /// The caller holds `binding`, and has taken the port from its place.
    fn close(&self, port: &Port) {
        self.ports[usize::from(port.local().port())].store(None);
        port.network.close();
    }

    /// Sends from `port`: directly to another of this server's clients, else by the network.
    fn send(&self, port: &Port, to: SocketAddrV4, data: &[u8]) -> io::Result<()> {
        if to.port() == 0 {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        // A datagram to 0.0.0.0 is for this host, as with the kernel's sockets.
        let ip = if to.ip().is_unspecified() { Ipv4Addr::LOCALHOST } else { *to.ip() };
        let peer = self.ports[usize::from(to.port())].load();
        if let Some(peer) = peer.as_ref().filter(|peer| peer.has_address(ip)) {
            let own = *port.local().ip();
            let source = if own.is_unspecified() { ip } else { own };
            if peer.arrive_from_here(SocketAddrV4::new(source, port.local().port()), data) {
                return Ok(());
            }
        }
        port.send(SocketAddrV4::new(ip, to.port()), data)
    }

    /// Returns the place of a client's port. The endpoint keeps indexes below `CLIENTS_MAX`.
    fn place(&self, client: ClientId) -> Option<&ArcSwapOption<Port>> {
        self.clients.get(client.index as usize)
    }

    /// Returns a client's port, if it has one.
    fn port_of(&self, client: ClientId) -> Option<Guard<Option<Arc<Port>>>> {
        let port = self.place(client)?.load();
        port.as_ref().is_some_and(|port| port.belongs_to(client)).then_some(port)
    }

    fn take(&self, caller: &rt::Caller, local: SocketAddrV4) -> io::Result<SocketAddrV4> {
        let refused = |number| Err(Error::from_raw_os_error(number));
        let is_reserved = local.port() != 0 && local.port() < first_unprivileged();
        if is_reserved && caller.credentials.uid != 0 {
            return refused(libc::EACCES);
        }
        let _binding = self.lock();
        let Some(place) = self.place(caller.client) else { return refused(libc::EINVAL) };
        match place.load_full() {
            // The port of an earlier client with this index, whose end was not reported yet.
            Some(left) if left.is_of_earlier(caller.client) => {
                place.store(None);
                self.close(&left);
            }
            // The client's own; or it has ended meanwhile, and a later one has its index.
            Some(_) => return refused(libc::EINVAL),
            None => {}
        }
        let inbox = Mutex::new(Inbox::new(Self::options().max_inflight as usize));
        let port = self.open(local, Owner::Client(caller.client, inbox))?;
        place.store(Some(Arc::clone(&port)));
        Ok(port.local())
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.ports.iter().filter_map(ArcSwapOption::load_full).for_each(|one| one.network.close());
    }
}

impl UdpServer for Udp {
    fn bind_op(&self, caller: &rt::Caller, local: &EndpointT) -> Result<UdpBindOut, rt::Fault> {
        let (ret, bound) = match self.take(caller, local.into()) {
            Ok(bound) => (0, bound.into()),
            Err(error) => (number(&error), *local),
        };
        Ok(UdpBindOut { ret, bound })
    }

    fn sendto(&self, caller: &rt::Caller, to: &EndpointT, data: &[u8]) {
        let port = self.port_of(caller.client);
        let Some(port) = port.as_ref().and_then(|port| port.as_ref()) else { return };
        if let Err(error) = self.send(port, to.into(), data)
            && let Some(mut inbox) = port.inbox_of(caller.client)
        {
            inbox.fail(number(&error));
        }
    }

    fn recvfrom(&self, caller: &rt::Caller, size: u32, reply: UdpRecvfromDeferredReply) {
        let port = self.port_of(caller.client);
        let port = port.as_ref().and_then(|port| port.as_ref());
        match port.and_then(|port| port.inbox_of(caller.client)) {
            Some(mut inbox) => inbox.receive(Call { size: size as usize, reply }),
            None => {
                let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into();
                // Fails if the caller has gone meanwhile, which needs no answer.
                let _ = reply.lend(libc::EINVAL.cast_unsigned(), &nobody, 0, &[]);
            }
        }
    }

    fn client_gone(&self, client: ClientId) {
        // A later client with this index binds in another thread.
        let _binding = self.lock();
        let port = self.port_of(client).and_then(|port| port.clone());
        if let (Some(port), Some(place)) = (port, self.place(client)) {
            place.store(None);
            self.close(&port);
        }
    }
}

/// Runs a receiving thread: from the kernel to the port, until the port is closed.
fn receive(port: &Port) {
    let mut datagram = Datagram::empty();
    while let Some(len) = port.network.receive(&mut datagram.bytes) {
        if let Some(parsed) = packet::parse(&datagram.bytes[..len], port.local().port()) {
            (datagram.from, datagram.payload) = (parsed.source, parsed.payload);
            port.arrive(&mut datagram);
        }
    }
}

fn first_unprivileged() -> u16 {
    let text = std::fs::read_to_string(UNPRIVILEGED).unwrap_or_default();
    text.trim().parse().unwrap_or(1024)
}

/// Returns the error number of an error of the kernel.
fn number(error: &Error) -> u32 {
    error.raw_os_error().unwrap_or(libc::EIO).cast_unsigned()
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
