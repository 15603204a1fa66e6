//! A port: its network, and the owner of its datagrams.

use crate::inbox::{Datagram, Inbox, Receiver};
use crate::network::Network;
use crate::stubs::server::UdpRecvfromDeferredReply;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};
use sojourn_ipc::{ClientId, Gone};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A program in the server's own process: called with each datagram, in the receiving thread.
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

/// The owner of a port.
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
    /// Returns the address and port to which it is bound.
    pub fn local(&self) -> SocketAddrV4 {
        self.network.local()
    }

    /// Sends a datagram by the network; never waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, to: SocketAddrV4, data: &[u8]) -> std::io::Result<()> {
        self.network.send(to, data)
    }

    /// Returns true if packets to `address` certainly reach this host's port.
    pub(crate) fn has_address(&self, address: Ipv4Addr) -> bool {
        let own = *self.local().ip();
        own == address || own.is_unspecified() && address.is_loopback()
    }

    /// Returns true if the port is `client`'s, and not that of an earlier client with the same
    /// index.
    pub(crate) fn belongs_to(&self, client: ClientId) -> bool {
        matches!(self.owner, Owner::Client(owner, _) if owner == client)
    }

    /// Returns true if the port is that of an earlier client with `client`'s index. Generations
    /// come again after 2^30 others, so the later one is less than half of that ahead.
    pub(crate) fn is_of_earlier(&self, client: ClientId) -> bool {
        let Owner::Client(owner, _) = &self.owner else { return false };
        let ahead = client.generation.wrapping_sub(owner.generation) % (1 << 30);
        (1..1 << 29).contains(&ahead)
    }

    /// Locks and returns the inbox, if the port is `client`'s.
    pub(crate) fn inbox_of(&self, client: ClientId) -> Option<MutexGuard<'_, Inbox<Call>>> {
        match &self.owner {
            Owner::Client(owner, inbox) if *owner == client => Some(lock(inbox)),
            _ => None,
        }
    }

    /// Takes a datagram from the network, under one lock on the way to the client's message.
    pub(crate) fn arrive(&self, datagram: &mut Datagram) {
        match &self.owner {
            Owner::Client(_, inbox) => lock(inbox).arrive(datagram),
            Owner::Here(handler) => handler(self, datagram.from, datagram.data()),
        }
    }

    /// Takes a datagram of another client; returns false if this port is not a client's.
    pub(crate) fn arrive_from_here(&self, from: SocketAddrV4, data: &[u8]) -> bool {
        match &self.owner {
            Owner::Client(_, inbox) => lock(inbox).arrive_from_here(from, data),
            // Goes by the network: two handlers that answer each other would recurse without end.
            Owner::Here(_) => return false,
        }
        true
    }
}

/// Locks an inbox, which is consistent between two operations even if a thread panicked.
fn lock(inbox: &Mutex<Inbox<Call>>) -> MutexGuard<'_, Inbox<Call>> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}
