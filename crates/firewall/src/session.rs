//! A session as packet filters see it: the header fields that all of its packets share.
//!
//! Not here: rules (`rule`).

use sojourn_wire::Protocol;
use std::net::{IpAddr, SocketAddr};

/// The interface of a session's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The index in the network namespace.
    pub index: u32,
    /// The name; empty if it is not known.
    pub name: String,
}

/// A session with another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The protocol: TCP or UDP.
    pub protocol: Protocol,
    /// This host's address and port; an unspecified address stands for any.
    pub local: SocketAddr,
    /// The peer's address and port; `None` for a UDP socket without a peer.
    pub remote: Option<SocketAddr>,
    /// The interface of the session's packets, if it is known.
    pub interface: Option<Interface>,
    /// True if connection tracking has seen packets of the session in both directions, so that the
    /// next ones are in the state `established`.
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

/// The direction of a packet, as this host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

impl Session {
    /// Returns the family of the session's packets.
    #[must_use]
    pub fn family(&self) -> Family {
        if self.local.ip().to_canonical().is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Returns the protocol's number, `IPPROTO_*`.
    pub(crate) fn number(&self) -> u8 {
        match self.protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }

    /// Returns source and destination of the session's packets in a direction.
    pub(crate) fn ends(&self, direction: Direction) -> [Option<SocketAddr>; 2] {
        match direction {
            Direction::In => [self.remote, Some(self.local)],
            Direction::Out => [Some(self.local), self.remote],
        }
    }
}

/// Returns the bytes of an address; `None` for an unspecified one.
pub(crate) fn octets(ip: IpAddr) -> Option<Vec<u8>> {
    match ip.to_canonical() {
        ip if ip.is_unspecified() => None,
        IpAddr::V4(ip) => Some(ip.octets().to_vec()),
        IpAddr::V6(ip) => Some(ip.octets().to_vec()),
    }
}
