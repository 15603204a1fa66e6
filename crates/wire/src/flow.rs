//! What names a flow of packets: a transport protocol and two endpoints.
//!
//! Not a session: that has a home and a holder. Not the packet filter's key, which is from the
//! point of view of this host.

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
    /// The number in IP headers.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The protocol of a number in IP headers, if it is one of these.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }
}

/// Where a packet comes from and where it goes.
///
/// Both addresses are of one IP version when it comes from a packet; flow label and scope of IPv6
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
    /// The key of the answers.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { protocol: self.protocol, source: self.target, target: self.source }
    }
}
