//! A router's notice that a packet was too long for its next link (RFC 1191, RFC 8201), and the
//! decision whether to believe it.
//!
//! The kernel would decide that for a session in its socket. The socket of a session that is away
//! knows nothing, so the kernel takes routers' notices about it for forged. Anybody can send such a
//! message. So it must quote a sequence number that is under way, which only those know who have
//! seen the session's packets (RFC 5927 section 4.1). Not here: receiving the messages (`paths`),
//! and telling the libraries (`routers`). Read `docs/understand/moves.md`, "The length of packets".

use crate::clock::later;
use sojourn_filter::Key;
use sojourn_proto::time::Instant;
use sojourn_pump::position::UnderWay;
use sojourn_wire::icmp::{Error, HEADER_BYTES, Reason};
use sojourn_wire::{FlowKey, Protocol, SeqNum, ip, ipv4, ipv6};
use std::net::Ipv6Addr;

/// The least MTU that Linux believes (`net.ipv4.route.min_pmtu`). Below that it lets routers
/// fragment packets.
const LEAST_V4: u32 = 552;
/// The least MTU of every link (RFC 8200 section 5).
const LEAST_V6: u32 = 1280;
/// How long knowledge of a path counts (microseconds; `net.ipv4.route.mtu_expires`): the path may
/// have become wider.
const EXPIRES_US: u64 = 600_000_000;

/// A router's notice that a packet of a session was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The session whose packet it was.
    pub(crate) key: Key,
    /// The packet's sequence number, for TCP.
    seq: Option<SeqNum>,
    /// The length that would have been possible (bytes); 0 if the router does not say.
    mtu: u32,
}

impl Notice {
    /// Reads a whole IPv4 packet with an ICMP message. `None` if it is not of that kind, or is
    /// damaged.
    pub(crate) fn read_v4(packet: &[u8]) -> Option<Self> {
        let packet = ipv4::Packet::new(packet).ok()?;
        if packet.protocol() != ip::number::ICMP {
            return None;
        }
        Self::of(Error::parse_v4(packet.payload()).ok()?)
    }

    /// Reads an ICMPv6 message from `router`. It must have come to the address from which the
    /// quoted packet came; its checksum proves that.
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

    /// Returns the key of an unconnected datagram socket that may have sent the packet.
    pub(crate) fn unconnected(&self) -> Option<Key> {
        let is_udp = self.key.protocol() == Protocol::Udp;
        is_udp.then(|| Key::new(Protocol::Udp, self.key.local(), None).ok())?
    }
}

/// The consequence of a notice that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The session's packets may have at most so many bytes.
    Narrow(u32),
    /// The length is so small that packets would have to be fragmented, which only the kernel does.
    Home,
}

/// Decides about a notice for the session of `key`, whose packets may have `known` bytes now.
/// `None` if the notice is not believed.
pub(crate) fn judge(
    notice: &Notice,
    key: &Key,
    under_way: UnderWay,
    known: u32,
) -> Option<Verdict> {
    let UnderWay { una, nxt } = under_way;
    let is_under_way = notice.seq.is_some_and(|seq| seq.is_in(una, nxt.since(una)));
    // One that makes no packet shorter changes nothing.
    if notice.key != *key || !is_under_way || notice.mtu >= known {
        return None;
    }
    let is_v4 = key.local().is_ipv4();
    match notice.mtu {
        mtu if is_v4 && mtu < LEAST_V4 => Some(Verdict::Home),
        // A node discards such a message (RFC 8201 section 4).
        mtu if !is_v4 && mtu < LEAST_V6 => None,
        mtu => Some(Verdict::Narrow(mtu)),
    }
}

/// The knowledge of a session's path beyond the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathMtu {
    /// A router's word (bytes).
    learnt: Option<u32>,
    /// The time at which the knowledge is dropped. The kernel's own knowledge expires, too, and
    /// nobody reports that.
    until: Instant,
}

impl PathMtu {
    /// Starts without knowledge.
    pub(crate) fn new(at: Instant) -> Self {
        Self { learnt: None, until: later(at, EXPIRES_US) }
    }

    pub(crate) fn learn(&mut self, mtu: u32, at: Instant) {
        *self = Self { learnt: Some(mtu), until: later(at, EXPIRES_US) };
    }

    /// Returns true if the knowledge has expired, and forgets it then.
    pub(crate) fn expires(&mut self, at: Instant) -> bool {
        let is_due = self.until <= at;
        if is_due {
            *self = Self::new(at);
        }
        is_due
    }

    /// Returns the length of packets, where the kernel says `mtu`.
    pub(crate) fn narrowed(&self, mtu: u32) -> u32 {
        self.learnt.map_or(mtu, |learnt| learnt.min(mtu))
    }
}

#[cfg(test)]
#[path = "too_big_tests.rs"]
mod tests;
