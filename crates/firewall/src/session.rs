//! A session as packet filters see it: what is known of the headers of all of its packets.
//!
//! Not here: rules (`rule`).

use sojourn_wire::Protocol;
use std::net::{IpAddr, SocketAddr};

/// The interface of a session's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index in the network namespace.
    pub index: u32,
    /// Its name; empty if it is not known.
    pub name: String,
}

/// A session with another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// This host's address and port; an unspecified address is any.
    pub local: SocketAddr,
    /// The peer's; `None` for a UDP socket without one.
    pub remote: Option<SocketAddr>,
    /// The one that its packets use, if it is known.
    pub interface: Option<Interface>,
    /// The connection tracking has seen packets of it in both directions, so that its next ones
    /// are in the state `established`.
    pub is_established: bool,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

impl Session {
    /// The family of its packets.
    #[must_use]
    pub fn family(&self) -> Family {
        if self.local.ip().to_canonical().is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// `IPPROTO_*`.
    pub(crate) fn number(&self) -> u8 {
        match self.protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }

    /// Source and destination of its packets that go that way.
    pub(crate) fn ends(&self, direction: Direction) -> [Option<SocketAddr>; 2] {
        match direction {
            Direction::In => [self.remote, Some(self.local)],
            Direction::Out => [Some(self.local), self.remote],
        }
    }
}

/// The bytes of an address that is known.
pub(crate) fn octets(ip: IpAddr) -> Option<Vec<u8>> {
    match ip.to_canonical() {
        ip if ip.is_unspecified() => None,
        IpAddr::V4(ip) => Some(ip.octets().to_vec()),
        IpAddr::V6(ip) => Some(ip.octets().to_vec()),
    }
}
