//! The packets of a session at a hook: what expressions can load of them.
//!
//! A byte that is not the same in all packets is unknown. Numbers are those of
//! `linux/netfilter/nf_tables.h`. Not here: what is done with the bytes (`rule`, `xtables`).

use crate::attributes::number;
use crate::registers::Known;
use crate::session::{Direction, Family, Session, octets};

/// `NFT_META_*`.
const META_PROTOCOL: u32 = 1;
const META_IIF: u32 = 4;
const META_OIF: u32 = 5;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const CT_STATE: u32 = 0;
/// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`.
const ESTABLISHED: u32 = 2;
/// `NFT_FIB_RESULT_OIFNAME`, and `NFTA_FIB_F_PRESENT`.
const FIB_OIFNAME: u32 = 2;
const FIB_PRESENT: u32 = 1 << 5;
/// `IFNAMSIZ`.
pub(crate) const NAME_LEN: usize = 16;
/// Bytes of the longest header of which anything is known.
const HEADER_MAX: usize = 40;

/// The packets of a session that reach a base chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packets<'s> {
    pub(crate) session: &'s Session,
    pub(crate) direction: Direction,
    /// True if the packets come with the session's own interface, and not with one below it.
    pub(crate) is_at_interface: bool,
    /// True if connection tracking has seen the packets before this hook.
    pub(crate) is_tracked: bool,
}

/// Returns bytes that are the same in all packets.
pub(crate) fn known(bytes: &[u8]) -> Known {
    bytes.iter().copied().map(Some).collect()
}

/// Returns the length of a `meta` key whose value is not known; `None` for one that this crate does
/// not know, such as those of bridges.
const fn meta_len(key: u32) -> Option<usize> {
    Some(match key {
        // The kind of packet, of a set of transformations, and the day.
        19 | 25 | 31 => 1,
        // Kinds of interfaces.
        8 | 9 => 2,
        // Length, priority, mark, user, group, route's class, security mark, processor, groups of
        // interfaces, control group, a random number, the hour, the interface in a VRF.
        0 | 2 | 3 | 10 | 11 | 13 | 14 | 20..=24 | 32 | 33 => 4,
        // Nanoseconds.
        30 => 8,
        // Names of kinds of interfaces.
        26 | 27 => NAME_LEN,
        _ => return None,
    })
}

/// Returns the value of a `meta` key. `None` for an unknown key, whose length is unknown too.
pub(crate) fn meta(key: u32, packets: Packets<'_>) -> Option<Known> {
    Some(match key {
        META_PROTOCOL => match packets.session.family() {
            Family::V4 => known(&[0x08, 0x00]),
            Family::V6 => known(&[0x86, 0xdd]),
        },
        META_NFPROTO => known(&[match packets.session.family() {
            Family::V4 => libc::AF_INET as u8,
            Family::V6 => libc::AF_INET6 as u8,
        }]),
        META_L4PROTO => known(&[packets.session.number()]),
        META_IIF => interface_index(packets, Direction::In),
        META_OIF => interface_index(packets, Direction::Out),
        META_IIFNAME => interface_name(packets, Direction::In),
        META_OIFNAME => interface_name(packets, Direction::Out),
        key => vec![None; meta_len(key)?],
    })
}

fn interface_index(packets: Packets<'_>, way: Direction) -> Known {
    let interface = packets.session.interface.as_ref();
    match interface.filter(|_| packets.is_at_interface && packets.direction == way) {
        Some(interface) => known(&interface.index.to_ne_bytes()),
        None => vec![None; 4],
    }
}

/// Returns the name of the interface that packets come from or go to, filled up with zeroes.
pub(crate) fn interface_name(packets: Packets<'_>, way: Direction) -> Known {
    let interface = packets.session.interface.as_ref();
    let interface = interface.filter(|_| packets.is_at_interface && packets.direction == way);
    let name = interface.map(|interface| interface.name.as_bytes());
    match name.filter(|name| (1..NAME_LEN).contains(&name.len())) {
        Some(name) => {
            let mut padded = known(name);
            padded.resize(NAME_LEN, Some(0));
            padded
        }
        None => vec![None; NAME_LEN],
    }
}

/// Returns the value of a `ct` key, without a direction; `None` for an unknown one.
pub(crate) fn tracked(key: u32, packets: Packets<'_>) -> Option<Known> {
    Some(match key {
        CT_STATE if is_known_established(packets) => known(&ESTABLISHED.to_ne_bytes()),
        // State, status, mark, security mark and time left.
        CT_STATE | 2..=5 => vec![None; 4],
        // Direction.
        1 => vec![None; 1],
        // Helper's name, labels.
        6 | 13 => vec![None; 16],
        _ => return None,
    })
}

/// Returns true if connection tracking takes all of the packets for those of an established
/// connection.
pub(crate) const fn is_known_established(packets: Packets<'_>) -> bool {
    packets.is_tracked && packets.session.is_established
}

/// Returns what `fib` stores: an interface or its name, a type of address, or a truth value.
/// Routes are not asked, so it is not known.
pub(crate) fn route(data: &[u8]) -> Option<Known> {
    let (result, flags) = (number(data, 2)?, number(data, 3)?);
    Some(match result {
        _ if flags & FIB_PRESENT != 0 => vec![None; 1],
        FIB_OIFNAME => vec![None; NAME_LEN],
        1 | 3 => vec![None; 4],
        _ => return None,
    })
}

/// Returns what `payload` loads; `None` if it writes, or loads more than a header has.
pub(crate) fn payload(data: &[u8], packets: Packets<'_>) -> Option<Known> {
    let (base, offset, len) = (number(data, 2)?, number(data, 3)?, number(data, 4)?);
    let (offset, len) = (offset as usize, len as usize);
    if len > HEADER_MAX {
        return None;
    }
    let header = match base {
        1 => network_header(packets),
        2 => transport_header(packets),
        _ => Vec::new(),
    };
    let byte = |at: usize| header.get(at).copied().flatten();
    Some((0..len).map(|at| offset.checked_add(at).and_then(byte)).collect())
}

fn network_header(packets: Packets<'_>) -> Known {
    let session = packets.session;
    // Offsets of the protocol, the source and the destination.
    let places = match session.family() {
        Family::V4 => [9, 12, 16],
        // No protocol in IPv6: extension headers may precede the session's own header.
        Family::V6 => [HEADER_MAX, 8, 24],
    };
    let mut header: Known = vec![None; HEADER_MAX];
    if let Some(protocol) = header.get_mut(places[0]) {
        *protocol = Some(session.number());
    }
    for (at, address) in places[1..].iter().zip(addresses(packets)) {
        for (place, byte) in header.iter_mut().skip(*at).zip(address) {
            *place = byte;
        }
    }
    header
}

/// Returns the packets' source and destination addresses.
pub(crate) fn addresses(packets: Packets<'_>) -> [Known; 2] {
    let len = if packets.session.family() == Family::V4 { 4 } else { 16 };
    packets.session.ends(packets.direction).map(|end| {
        match end.and_then(|end| octets(end.ip())).filter(|address| address.len() == len) {
            Some(address) => known(&address),
            None => vec![None; len],
        }
    })
}

/// Returns the packets' source and destination ports.
pub(crate) fn ports(packets: Packets<'_>) -> [Option<u16>; 2] {
    packets.session.ends(packets.direction).map(|end| end.map(|end| end.port()))
}

fn transport_header(packets: Packets<'_>) -> Known {
    let port = |port: Option<u16>| match port {
        Some(port) => known(&port.to_be_bytes()),
        None => vec![None; 2],
    };
    ports(packets).into_iter().flat_map(port).collect()
}
