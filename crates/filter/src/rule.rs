//! The filter's data of a session: a key of 40 bytes, and the rule for its packets.
//!
//! The encodings are those of `bpf/filter/maps.h`. Not here: the use of the rules
//! (`bpf/filter.bpf.c`, and in Rust `oracle`).

use core::fmt;
use sojourn_wire::Protocol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// Bytes of an encoded key.
pub const KEY_LEN: usize = 40;
/// Bytes of an encoded rule.
pub const RULE_LEN: usize = 16;

/// A session from the point of view of this host.
///
/// ```text
///  0         1        2    4            6             8             24             40
///  | protocol | family | 0  | local port | remote port | local address | remote address |
/// ```
/// Ports and addresses are in network order, the family is 4 or 6, and an IPv4 address is followed
/// by twelve zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    protocol: Protocol,
    local: Endpoint,
    remote: Endpoint,
}

/// An address and a port, which are only compared for equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Endpoint {
    address: IpAddr,
    port: u16,
}

impl Endpoint {
    /// Creates the endpoint. IPv4-mapped IPv6 addresses become IPv4, because such packets are IPv4
    /// on the wire.
    fn new(address: SocketAddr) -> Self {
        Self { address: address.ip().to_canonical(), port: address.port() }
    }
}

/// The reason why two endpoints are not a session that the filter can direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// A session has one IP version.
    #[error("one address is IPv4 and the other is IPv6")]
    Families,
    /// Without a local address or port, the session's packets would depend on the host's other
    /// addresses.
    #[error("the local endpoint has no address or no port")]
    NoLocal,
    /// Only a datagram socket can receive from any peer.
    #[error("a TCP session has a remote endpoint")]
    NoRemote,
    /// A group's packets go to every member, and so also to the kernel.
    #[error("an endpoint is a group or the broadcast address")]
    Group,
}

impl Key {
    /// Creates the key of the session between two endpoints. `remote` is `None` for a datagram
    /// socket that is not connected.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn new(
        protocol: Protocol,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Result<Self, KeyError> {
        let local = Endpoint::new(local);
        if local.address.is_unspecified() || local.port == 0 {
            return Err(KeyError::NoLocal);
        }
        let remote = match remote.map(Endpoint::new) {
            Some(remote) if remote.address.is_unspecified() || remote.port == 0 => {
                return Err(KeyError::NoRemote);
            }
            Some(remote) => remote,
            None if protocol == Protocol::Udp => Endpoint {
                address: match local.address {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                },
                port: 0,
            },
            None => return Err(KeyError::NoRemote),
        };
        if local.address.is_ipv4() != remote.address.is_ipv4() {
            return Err(KeyError::Families);
        }
        if [local, remote].iter().any(|end| is_group(end.address)) {
            return Err(KeyError::Group);
        }
        Ok(Self { protocol, local, remote })
    }

    /// The transport protocol.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// This host's endpoint.
    pub const fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local.address, self.local.port)
    }

    /// The peer, if there is one.
    pub fn remote(&self) -> Option<SocketAddr> {
        let remote = SocketAddr::new(self.remote.address, self.remote.port);
        (self.remote.port != 0).then_some(remote)
    }

    /// Returns the key in the form of the map.
    pub fn encode(&self) -> [u8; KEY_LEN] {
        let mut bytes = [0; KEY_LEN];
        bytes[0] = self.protocol.number();
        bytes[1] = if self.local.address.is_ipv4() { 4 } else { 6 };
        bytes[4..6].copy_from_slice(&self.local.port.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.remote.port.to_be_bytes());
        for (at, address) in [(8, self.local.address), (24, self.remote.address)] {
            match address {
                IpAddr::V4(address) => bytes[at..at + 4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => bytes[at..at + 16].copy_from_slice(&address.octets()),
            }
        }
        bytes
    }

    /// Reads a key from the form of the map; `None` for bytes that [`Key::encode`] does not return.
    pub fn decode(bytes: &[u8; KEY_LEN]) -> Option<Self> {
        let protocol = Protocol::from_number(bytes[0])?;
        let address = |at: usize| -> Option<IpAddr> {
            let octets = <[u8; 16]>::try_from(&bytes[at..at + 16]).ok()?;
            match bytes[1] {
                4 => Some(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into()),
                6 => Some(Ipv6Addr::from(octets).into()),
                _ => None,
            }
        };
        let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let local = SocketAddr::new(address(8)?, port(4));
        let remote = SocketAddr::new(address(24)?, port(6));
        let nobody = remote.ip().is_unspecified() && remote.port() == 0;
        let key = Self::new(protocol, local, (!nobody).then_some(remote)).ok()?;
        (key.encode() == *bytes).then_some(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        match self.remote() {
            Some(remote) => write!(f, "{protocol} {} {remote}", self.local()),
            None => write!(f, "{protocol} {} *", self.local()),
        }
    }
}

/// Returns true for multicast, reserved and broadcast addresses: 224.0.0.0 and above, and ff00::/8.
pub(crate) fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] >= 224,
        IpAddr::V6(address) => address.is_multicast(),
    }
}

/// The number of an owner: a program, or one of its ways to packets. A filter never uses a number
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// The way of a session's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The owner's packet socket on the interface.
    Direct,
    /// The port whose server's side is this interface.
    Port {
        /// Interface index.
        interface: u32,
    },
    /// The owner's AF_XDP sockets, and its packet socket for packets that they do not get.
    Xsk,
}

/// The rule for a session's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The owner, which gets the packets.
    pub owner: OwnerId,
    /// The way to the owner.
    pub target: Target,
    /// A fragmented segment arrived, and was dropped: the session should go home, because only the
    /// kernel reassembles fragments.
    pub fragment_seen: bool,
    /// The rule was added a moment ago: a frame of TCP that the packet sockets have seen before it
    /// was there may be on its way to the kernel, and still reaches it.
    pub is_new: bool,
    /// No packet of the session passes its port, in either direction.
    pub is_held: bool,
}

/// Bits of a rule's notes.
const NOTE_FRAGMENT: u32 = 1;
const NOTE_NEW: u32 = 2;
const NOTE_HELD: u32 = 4;

impl Rule {
    /// Returns the rule in the form of the map: owner, mode, target, notes; numbers of 4 bytes in
    /// the machine's order.
    pub fn encode(&self) -> [u8; RULE_LEN] {
        let (mode, target) = match self.target {
            Target::Direct => (1, 0),
            Target::Port { interface } => (2, interface),
            Target::Xsk => (3, 0),
        };
        let mut bytes = [0; RULE_LEN];
        let note = |is_set, bit| if is_set { bit } else { 0 };
        let notes = note(self.fragment_seen, NOTE_FRAGMENT)
            | note(self.is_new, NOTE_NEW)
            | note(self.is_held, NOTE_HELD);
        let words = [self.owner.0, mode, target, notes];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Reads a rule from the form of the map; `None` for an unknown mode.
    pub fn decode(bytes: &[u8; RULE_LEN]) -> Option<Self> {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let target = match word(4) {
            1 => Target::Direct,
            2 => Target::Port { interface: word(8) },
            3 => Target::Xsk,
            _ => return None,
        };
        let has = |bit| word(12) & bit != 0;
        Some(Self {
            owner: OwnerId(word(0)),
            target,
            fragment_seen: has(NOTE_FRAGMENT),
            is_new: has(NOTE_NEW),
            is_held: has(NOTE_HELD),
        })
    }
}

#[cfg(test)]
#[path = "rule_tests.rs"]
mod tests;
