//! A port: its network, and who gets what comes for it.

use crate::inbox::{Datagram, Inbox, Receiver};
use crate::network::Network;
use crate::stubs::server::UdpRecvfromDeferredReply;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};
use sojourn_ipc::{ClientId, Gone};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A program in the server's own process: is given each datagram on the thread that brings it.
pub type Handler = Box<dyn Fn(&Port, SocketAddrV4, &[u8]) + Send + Sync>;

/// A call of `recvfrom` that has not been answered.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) size: usize,
    pub(crate) reply: UdpRecvfromDeferredReply,
}

impl Receiver for Call {
    fn answer(self, status: u32, from: SocketAddrV4, data: &[u8]) -> Result<(), Gone> {
        let first = &data[..data.len().min(self.size)];
        self.reply.lend(status, &from.into(), data.len() as u32, first)
    }
}

/// Who has a port.
pub(crate) enum Owner {
    Client(ClientId, Mutex<Inbox<Call>>),
    Here(Handler),
}

/// A bound port.
pub struct Port {
    pub(crate) network: Network,
    pub(crate) owner: Owner,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("network", &self.network).finish_non_exhaustive()
    }
}

impl Port {
    /// Where it is bound.
    pub fn local(&self) -> SocketAddrV4 {
        self.network.local()
    }

    /// Sends by the network; never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, to: SocketAddrV4, data: &[u8]) -> std::io::Result<()> {
        self.network.send(to, data)
    }

    /// Whether what is sent to `address` is certainly for this host's port.
    pub(crate) fn is_at(&self, address: Ipv4Addr) -> bool {
        let own = *self.local().ip();
        own == address || own.is_unspecified() && address.is_loopback()
    }

    /// Whether the port is `client`'s, and not that of who had the same index before.
    pub(crate) fn is_of(&self, client: ClientId) -> bool {
        matches!(self.owner, Owner::Client(owner, _) if owner == client)
    }

    /// The inbox, if the port is `client`'s.
    pub(crate) fn inbox_of(&self, client: ClientId) -> Option<MutexGuard<'_, Inbox<Call>>> {
        match &self.owner {
            Owner::Client(owner, inbox) if *owner == client => Some(lock(inbox)),
            _ => None,
        }
    }

    /// Takes in a datagram from the network: one lock on the way to the client's message.
    pub(crate) fn arrive(&self, datagram: &mut Datagram) {
        match &self.owner {
            Owner::Client(_, inbox) => lock(inbox).arrive(datagram),
            Owner::Here(handler) => handler(self, datagram.from, datagram.data()),
        }
    }

    /// Takes in a datagram of another client, if this port is a client's too.
    pub(crate) fn arrive_from_here(&self, from: SocketAddrV4, data: &[u8]) -> bool {
        match &self.owner {
            Owner::Client(_, inbox) => lock(inbox).arrive_from_here(from, data),
            // By the network, so that two that answer each other cannot go on within each other.
            Owner::Here(_) => return false,
        }
        true
    }
}

/// The inbox is whole after every step, whatever thread died.
fn lock(inbox: &Mutex<Inbox<Call>>) -> MutexGuard<'_, Inbox<Call>> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}
