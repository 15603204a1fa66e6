//! What a router says of a packet that was too long for its next link (RFC 1191, RFC 8201), and
//! whether it is believed.
//!
//! The kernel would decide that for a session in its socket. Of a session that is away the socket
//! knows nothing, so the kernel takes what routers say of it for forged. Anybody can send such a
//! message; it must quote what only who has seen the session's packets knows: a sequence number
//! that is under way (RFC 5927 section 4.1). Not here: where the messages come from (`paths`), who
//! is told (`routers`). Read `docs/understand/moves.md`, "The length of packets".

use crate::clock::later;
use sojourn_filter::Key;
use sojourn_proto::time::Instant;
use sojourn_wire::icmp::{Error, HEADER_BYTES, Reason};
use sojourn_wire::{FlowKey, Protocol, SeqNum, ip, ipv4, ipv6};
use std::net::Ipv6Addr;

/// What Linux believes at least (`net.ipv4.route.min_pmtu`). Below that it lets routers cut packets
/// in pieces.
const LEAST_V4: u32 = 552;
/// What every link has to take (RFC 8200 section 5).
const LEAST_V6: u32 = 1280;
/// So long what was learnt of a path counts (microseconds; `net.ipv4.route.mtu_expires`): it may
/// have become wider.
const EXPIRES_US: u64 = 600_000_000;

/// A router's word that a packet of a session was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Whose packet.
    pub(crate) key: Key,
    /// Which one, of TCP.
    seq: Option<SeqNum>,
    /// What would not have been too long, in bytes; 0 if the router does not say.
    mtu: u32,
}

impl Notice {
    /// What a whole IPv4 packet says with protocol ICMP; `None`: nothing of that kind, or it is
    /// damaged.
    pub(crate) fn read_v4(packet: &[u8]) -> Option<Self> {
        let packet = ipv4::Packet::new(packet).ok()?;
        if packet.protocol() != ip::number::ICMP {
            return None;
        }
        Self::of(Error::parse_v4(packet.payload()).ok()?)
    }

    /// The same for an ICMPv6 message from `router`. It must have come to the address that the
    /// quoted packet came from, of which its checksum tells.
    pub(crate) fn read_v6(message: &[u8], router: Ipv6Addr) -> Option<Self> {
        let quoted = message.get(HEADER_BYTES..HEADER_BYTES + ipv6::HEADER_BYTES)?;
        let own: [u8; 16] = quoted.get(8..24)?.try_into().ok()?;
        Self::of(Error::parse_v6(message, router, Ipv6Addr::from(own)).ok()?)
    }

    fn of(error: Error) -> Option<Self> {
        let Error { reason: Reason::TooBig { mtu }, flow, seq } = error else { return None };
        let FlowKey { protocol, source, target } = flow;
        let key = Key::new(protocol, source, Some(target)).ok()?;
        Some(Self { key, seq, mtu })
    }

    /// A datagram socket that may have sent the packet though it is not connected to where that
    /// went.
    pub(crate) fn unconnected(&self) -> Option<Key> {
        let is_udp = self.key.protocol() == Protocol::Udp;
        is_udp.then(|| Key::new(Protocol::Udp, self.key.local(), None).ok())?
    }
}

/// What follows from a word that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The session's packets may be so long.
    Narrow(u32),
    /// So little that packets would have to be cut on the way: only the kernel does that.
    Home,
}

/// Whether to believe the word about a session of that key whose packets from `una` up to `nxt` are
/// under way, and may be `known` bytes long.
pub(crate) fn judge(
    notice: &Notice,
    key: &Key,
    (una, nxt): (SeqNum, SeqNum),
    known: u32,
) -> Option<Verdict> {
    let is_under_way = notice.seq.is_some_and(|seq| seq.is_in(una, nxt.since(una)));
    if notice.key != *key || !is_under_way || notice.mtu >= known {
        return None;
    }
    let is_v4 = key.local().is_ipv4();
    match notice.mtu {
        mtu if is_v4 && mtu < LEAST_V4 => Some(Verdict::Home),
        mtu if !is_v4 && mtu < LEAST_V6 => None,
        mtu => Some(Verdict::Narrow(mtu)),
    }
}

/// What is known of a session's path beyond what the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathMtu {
    /// What a router has said, in bytes.
    learnt: Option<u32>,
    /// What is known is looked at again then. What the kernel has learnt expires, too, and nobody
    /// says so.
    until: Instant,
}

impl PathMtu {
    /// Nothing is known yet.
    pub(crate) fn new(at: Instant) -> Self {
        Self { learnt: None, until: later(at, EXPIRES_US) }
    }

    pub(crate) fn learn(&mut self, mtu: u32, at: Instant) {
        *self = Self { learnt: Some(mtu), until: later(at, EXPIRES_US) };
    }

    /// Whether it is to be looked at again: then what was learnt is forgotten.
    pub(crate) fn expires(&mut self, at: Instant) -> bool {
        let is_due = self.until <= at;
        if is_due {
            *self = Self::new(at);
        }
        is_due
    }

    /// How long packets may be of which the kernel says that.
    pub(crate) fn narrowed(&self, mtu: u32) -> u32 {
        self.learnt.map_or(mtu, |learnt| learnt.min(mtu))
    }
}

#[cfg(test)]
#[path = "too_big_tests.rs"]
mod tests;
