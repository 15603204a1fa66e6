//! One rule of nftables: its match with the packets of a session, and its action.
//!
//! Expressions are evaluated as the kernel evaluates them, on registers of which only some bytes
//! are known (`registers`). An unknown expression could do anything. Numbers are those of
//! `linux/netfilter/nf_tables.h`. Not here: chains (`ruleset`).

use crate::attributes::{attributes, find, number, text};
use crate::registers::{Holds, Known, Registers, equals, order};
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
/// `IFNAMSIZ`.
const NAME_LEN: usize = 16;
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

/// The action of a rule on a packet that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Goes on with the next rule.
    Continue,
    Accept,
    Return,
    Jump(String),
    Goto(String),
    /// An action that only the kernel can do, or that drops the packet.
    Other,
}

/// The effect of a rule on a session's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) holds: Holds,
    pub(crate) action: Action,
}

/// The effect of one expression.
enum Effect {
    /// Compares; the rule goes on if the comparison holds.
    Test(Holds),
    /// Loads a register, or counts.
    Next,
    Ends(Action),
}

/// Evaluates a rule with these expressions (`NFTA_RULE_EXPRESSIONS`).
pub(crate) fn saying(expressions: &[u8], packets: Packets<'_>) -> Saying {
    let mut registers = Registers::new();
    let mut holds = Holds::Always;
    for expression in attributes(expressions) {
        let name = text(expression.value, 1).unwrap_or_default();
        let data = find(expression.value, 2).unwrap_or_default();
        let step = step(&name, data, packets, &mut registers);
        match step.unwrap_or(Effect::Ends(Action::Other)) {
            Effect::Test(Holds::Never) => {
                return Saying { holds: Holds::Never, action: Action::Continue };
            }
            Effect::Test(Holds::Maybe) => holds = Holds::Maybe,
            Effect::Test(Holds::Always) | Effect::Next => {}
            Effect::Ends(action) => return Saying { holds, action },
        }
    }
    Saying { holds, action: Action::Continue }
}

/// Evaluates one expression. Returns `None` if it is not understood.
fn step(
    name: &str,
    data: &[u8],
    packets: Packets<'_>,
    registers: &mut Registers,
) -> Option<Effect> {
    let done = match name {
        // A counter does not stop packets, so those that bypass it lose nothing but their count.
        "counter" => Some(()),
        "meta" => registers.store(number(data, 1)?, &meta(number(data, 2)?, packets)?),
        "ct" => registers.store(number(data, 1)?, &tracked(number(data, 2)?, packets)?),
        "payload" => registers.store(number(data, 1)?, &payload(data, packets)?),
        "bitwise" => bitwise(data, registers),
        "cmp" => return compare(data, registers).map(Effect::Test),
        // Sets are not read, so a lookup may match. A map (with `NFTA_LOOKUP_DREG`) may yield
        // anything.
        "lookup" if find(data, 3).is_none() => return Some(Effect::Test(Holds::Maybe)),
        "limit" | "match" | "range" => return Some(Effect::Test(Holds::Maybe)),
        "immediate" => return verdict(data).map(Effect::Ends),
        _ => return None,
    };
    done.map(|()| Effect::Next)
}

fn known(bytes: &[u8]) -> Known {
    bytes.iter().copied().map(Some).collect()
}

/// Returns the value of a `meta` key. `None` for an unknown key, whose length is unknown too, and
/// for an expression that sets a key.
fn meta(key: u32, packets: Packets<'_>) -> Option<Known> {
    let Packets { session, direction, is_at_interface, .. } = packets;
    let interface = session.interface.as_ref().filter(|_| is_at_interface);
    let is_own_way = match key {
        META_IIF | META_IIFNAME => direction == Direction::In,
        _ => direction == Direction::Out,
    };
    Some(match key {
        META_PROTOCOL => match session.family() {
            Family::V4 => known(&[0x08, 0x00]),
            Family::V6 => known(&[0x86, 0xdd]),
        },
        META_NFPROTO => known(&[match session.family() {
            Family::V4 => libc::AF_INET as u8,
            Family::V6 => libc::AF_INET6 as u8,
        }]),
        META_L4PROTO => known(&[session.number()]),
        META_IIF | META_OIF => match interface.filter(|_| is_own_way) {
            Some(interface) => known(&interface.index.to_ne_bytes()),
            None => vec![None; 4],
        },
        META_IIFNAME | META_OIFNAME => {
            let name = interface.filter(|_| is_own_way).map(|interface| interface.name.as_bytes());
            match name.filter(|name| (1..NAME_LEN).contains(&name.len())) {
                Some(name) => {
                    let mut padded = known(name);
                    padded.resize(NAME_LEN, Some(0));
                    padded
                }
                None => vec![None; NAME_LEN],
            }
        }
        _ => return None,
    })
}

fn tracked(key: u32, packets: Packets<'_>) -> Option<Known> {
    match key {
        CT_STATE if packets.is_tracked && packets.session.is_established => {
            Some(known(&ESTABLISHED.to_ne_bytes()))
        }
        CT_STATE => Some(vec![None; 4]),
        _ => None,
    }
}

fn payload(data: &[u8], packets: Packets<'_>) -> Option<Known> {
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
    for (at, end) in places[1..].iter().zip(session.ends(packets.direction)) {
        let bytes = end.and_then(|end| octets(end.ip())).unwrap_or_default();
        for (place, byte) in header.iter_mut().skip(*at).zip(bytes) {
            *place = Some(byte);
        }
    }
    header
}

fn transport_header(packets: Packets<'_>) -> Known {
    let ends = packets.session.ends(packets.direction);
    let port = |end: Option<std::net::SocketAddr>| match end {
        Some(end) => known(&end.port().to_be_bytes()),
        None => vec![None; 2],
    };
    ends.into_iter().flat_map(port).collect()
}

fn bitwise(data: &[u8], registers: &mut Registers) -> Option<()> {
    // Only NFT_BITWISE_BOOL (mask and xor) is understood; shifts are not.
    if number(data, 6).is_some_and(|operation| operation != 0) {
        return None;
    }
    let (mask, xor) = (find(find(data, 4)?, 1)?, find(find(data, 5)?, 1)?);
    let value = registers.load(number(data, 1)?, mask.len())?;
    if xor.len() != mask.len() {
        return None;
    }
    let one = |((byte, mask), xor): ((Option<u8>, &u8), &u8)| match (byte, mask) {
        (_, 0) => Some(*xor),
        (Some(byte), mask) => Some(byte & mask ^ xor),
        (None, _) => None,
    };
    let value: Known = value.into_iter().zip(mask).zip(xor).map(one).collect();
    registers.store(number(data, 2)?, &value)
}

fn compare(data: &[u8], registers: &Registers) -> Option<Holds> {
    let value = find(find(data, 3)?, 1)?;
    let known = registers.load(number(data, 1)?, value.len())?;
    let order = order(&known, value);
    Some(match number(data, 2)? {
        0 => equals(&known, value),
        1 => equals(&known, value).not(),
        2 => order.map(core::cmp::Ordering::is_lt).into(),
        3 => order.map(core::cmp::Ordering::is_le).into(),
        4 => order.map(core::cmp::Ordering::is_gt).into(),
        5 => order.map(core::cmp::Ordering::is_ge).into(),
        _ => return None,
    })
}

/// Reads a verdict. `None` for a value that is not one, or a malformed verdict.
fn verdict(data: &[u8]) -> Option<Action> {
    let verdict = find(find(data, 2)?, 2)?;
    let chain = || text(verdict, 2);
    Some(match number(verdict, 1)?.cast_signed() {
        1 => Action::Accept,
        -1 => Action::Continue,
        -3 => Action::Jump(chain()?),
        -4 => Action::Goto(chain()?),
        -5 => Action::Return,
        _ => Action::Other,
    })
}
