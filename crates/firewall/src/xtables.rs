//! Matches of iptables (`-m`), which nftables' compatibility expression and the legacy tables have
//! in common: whether they hold for a session's packets.
//!
//! Layouts are those of `linux/netfilter/xt_*.h`, which user space depends on; another revision is
//! not understood. A match that depends on what sessions' packets do not share may hold; one that
//! keeps something of the packets that it sees (`recent`, `hashlimit`, `quota`) is not understood.
//! Not here: targets, none of which is understood, and rules (`rule`, `tables`).

use crate::packets::{Packets, is_known_established, ports};
use crate::registers::Holds;
use crate::session::Direction;
use sojourn_wire::Protocol;

/// Matches that only look at the packet, or at what the kernel has for it.
const LOOKING: [&str; 33] = [
    "addrtype",
    "ah",
    "bpf",
    "cgroup",
    "connbytes",
    "connmark",
    "cpu",
    "dccp",
    "devgroup",
    "dscp",
    "ecn",
    "esp",
    "frag",
    "helper",
    "hl",
    "icmp",
    "icmp6",
    "iprange",
    "length",
    "mac",
    "mark",
    "owner",
    "physdev",
    "pkttype",
    "policy",
    "realm",
    "rpfilter",
    "sctp",
    "set",
    "tcpmss",
    "time",
    "ttl",
    "u32",
];

/// `XT_CONNTRACK_STATE`; bits of states, those of `XT_CONNTRACK_STATE_BIT`.
const OF_STATE: u16 = 1;
const STATE_ESTABLISHED: u16 = 2;
const STATES_OF_TRANSLATION: u16 = 64 | 128;
/// `XT_TCP_INV_SRCPT`, `..._DSTPT`, `..._FLAGS` and `..._OPTION`; for UDP the first two.
const INVERTS_SOURCE: u8 = 1;
const INVERTS_TARGET: u8 = 2;
const INVERTS_REST: u8 = 4 | 8;
/// Ports of `struct xt_multiport_v1`.
const PORTS_MAX: usize = 15;
/// Bytes of `-m set`'s and others' largest data; longer data is not theirs.
const INFO_MAX: usize = 4096;

/// Tells whether a match holds for the packets; `None` if it is not understood.
pub(crate) fn holds(name: &str, revision: u32, info: &[u8], packets: Packets<'_>) -> Option<Holds> {
    match (name, revision) {
        ("comment", 0) => Some(Holds::Always),
        ("conntrack", 1..=3) => connection(revision, info, packets),
        ("state", 0) => Some(state(u16::try_from(word(info, 0)?).ok()?, packets)),
        ("tcp", 0) => tcp(info, packets),
        ("udp", 0) => udp(info, packets),
        // Packets with a routing header are the kernel's (`bpf/filter/parse.h`).
        ("rt", 0) => Some(Holds::Never),
        ("multiport", 1) => multiport(info, packets),
        _ => (LOOKING.contains(&name) && info.len() <= INFO_MAX).then_some(Holds::Maybe),
    }
}

/// Returns true if a target marks packets for security modules.
pub(crate) fn marks(target: &str) -> bool {
    matches!(target, "SECMARK" | "CONNSECMARK")
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Returns the result of a test of which it is said that it is to fail.
pub(crate) const fn inverted_if(holds: Holds, is_inverted: bool) -> Holds {
    if is_inverted { holds.not() } else { holds }
}

/// `struct xt_conntrack_mtinfo1`, and 2 and 3, whose states are wider.
fn connection(revision: u32, info: &[u8], packets: Packets<'_>) -> Option<Holds> {
    let (asked, inverted) = (half(info, 146)?, half(info, 148)?);
    let states = match revision {
        1 => u16::from(*info.get(150)?),
        _ => half(info, 150)?,
    };
    if asked & OF_STATE == 0 {
        return Some(Holds::Maybe);
    }
    let of_state = inverted_if(state(states, packets), inverted & OF_STATE != 0);
    // The other conditions (addresses, times, directions) may hold or not.
    Some(if asked == OF_STATE { of_state } else { of_state.and(Holds::Maybe) })
}

/// Tells whether the packets are in one of these states.
fn state(states: u16, packets: Packets<'_>) -> Holds {
    if !is_known_established(packets) {
        return Holds::Maybe;
    }
    if states & STATE_ESTABLISHED != 0 {
        return Holds::Always;
    }
    // A translated connection is in two states at once.
    if states & STATES_OF_TRANSLATION != 0 { Holds::Maybe } else { Holds::Never }
}

/// Tells whether a port is in a range, both ends included.
fn in_range(port: Option<u16>, [from, to]: [u16; 2]) -> Holds {
    port.map(|port| (from..=to).contains(&port)).into()
}

/// Compares both ports with the ranges at the beginning of `struct xt_tcp` and `struct xt_udp`.
fn both_ports(info: &[u8], inverted: u8, packets: Packets<'_>) -> Option<Holds> {
    let [source, target] = ports(packets);
    let of_source = in_range(source, [half(info, 0)?, half(info, 2)?]);
    let of_target = in_range(target, [half(info, 4)?, half(info, 6)?]);
    let of_source = inverted_if(of_source, inverted & INVERTS_SOURCE != 0);
    Some(of_source.and(inverted_if(of_target, inverted & INVERTS_TARGET != 0)))
}

/// `struct xt_tcp`: behind the ports an option, a mask of flags with their values, and what is
/// inverted.
fn tcp(info: &[u8], packets: Packets<'_>) -> Option<Holds> {
    let [option, mask, _, inverted] = info.get(8..12)?.try_into().ok()?;
    if packets.session.protocol != Protocol::Tcp {
        return Some(Holds::Maybe);
    }
    let of_ports = both_ports(info, inverted, packets)?;
    let asks_for_more = option != 0 || mask != 0 || inverted & INVERTS_REST != 0;
    Some(if asks_for_more { of_ports.and(Holds::Maybe) } else { of_ports })
}

fn udp(info: &[u8], packets: Packets<'_>) -> Option<Holds> {
    let inverted = *info.get(8)?;
    if packets.session.protocol != Protocol::Udp {
        return Some(Holds::Maybe);
    }
    both_ports(info, inverted, packets)
}

/// `struct xt_multiport_v1`: which ports are compared, how many values follow, the values, which of
/// them begin a range, and whether the result is inverted.
fn multiport(info: &[u8], packets: Packets<'_>) -> Option<Holds> {
    let [which, count] = *info.get(..2)?.as_array::<2>()?;
    let begins: &[u8] = info.get(2 + 2 * PORTS_MAX..2 + 3 * PORTS_MAX)?;
    let is_inverted = *info.get(2 + 3 * PORTS_MAX)? != 0;
    let [source, target] = ports(packets);
    let compared = match which {
        0 => vec![source],
        1 => vec![target],
        2 => vec![source, target],
        _ => return None,
    };
    if usize::from(count) > PORTS_MAX {
        return None;
    }
    let mut holds = Holds::Never;
    let mut at = 0;
    while at < usize::from(count) {
        let from = half(info, 2 + 2 * at)?;
        let is_range = *begins.get(at)? != 0;
        at += usize::from(is_range);
        let to = if is_range && at < PORTS_MAX { half(info, 2 + 2 * at)? } else { from };
        at += 1;
        for port in &compared {
            holds = holds.or(in_range(*port, [from, to]));
        }
    }
    Some(inverted_if(holds, is_inverted))
}

/// Tells whether the packets' interface has that name, of which only the bits in `mask` count. The
/// name of an interface that packets do not have is empty.
pub(crate) fn interface(
    name: &[u8],
    mask: &[u8],
    way: Direction,
    packets: Packets<'_>,
) -> Option<Holds> {
    let own = match packets.direction {
        // Packets that come in have no interface out. Of those that go out kernels differ.
        Direction::In if way == Direction::Out => vec![Some(0); crate::packets::NAME_LEN],
        _ => crate::packets::interface_name(packets, way),
    };
    masked(&own, name, mask)
}

/// Compares bytes, of which only the bits in `mask` count. `None` if lengths differ.
pub(crate) fn masked(known: &[Option<u8>], value: &[u8], mask: &[u8]) -> Option<Holds> {
    (known.len() == value.len() && value.len() == mask.len()).then_some(())?;
    let one = |((known, value), mask): ((&Option<u8>, &u8), &u8)| match (known, mask) {
        (_, 0) => Holds::Always,
        (Some(known), mask) => ((known ^ value) & mask == 0).into(),
        (None, _) => Holds::Maybe,
    };
    Some(known.iter().zip(value).zip(mask).map(one).fold(Holds::Always, Holds::and))
}

#[cfg(test)]
#[path = "xtables_tests.rs"]
mod tests;
