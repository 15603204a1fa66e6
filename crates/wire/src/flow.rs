//! The key of a flow of packets: a transport protocol and two endpoints.
//!
//! A flow key is not a session, which has a home and a holder, and not the packet filter's key,
//! which is from the point of view of this host.

use core::net::SocketAddr;

/// The transport protocols that can leave the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// RFC 9293.
    Tcp = 6,
    /// RFC 768.
    Udp = 17,
}

impl Protocol {
    /// Returns the number in IP headers.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the protocol with a number in IP headers, if it is one of these.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }
}

/// The transport protocol, source and target of a packet.
///
/// Both addresses of a parsed packet's key are of one IP version; flow label and scope of IPv6
/// addresses are zero, so that equal packets make equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub target: SocketAddr,
}

impl FlowKey {
    /// Returns the key of the packets in the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { protocol: self.protocol, source: self.target, target: self.source }
    }
}
