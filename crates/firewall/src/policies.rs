//! IPsec policies of the kernel (`struct xfrm_userpolicy_info` of `linux/xfrm.h`): whether one
//! selects a session's packets.
//!
//! Not here: what it does to them; the engine does none of it.

use crate::session::{Direction, Family, Session, octets};
use std::net::SocketAddr;

/// Where things are in a policy: its selector comes first.
const SPORT: usize = 36;
const DPORT: usize = 32;
const SADDR: usize = 16;
const FAMILY: usize = 40;
const PREFIX_D: usize = 42;
const PREFIX_S: usize = 43;
const PROTO: usize = 44;
const DIRECTION: usize = 160;

/// Whether the policy may select packets of the session. One that cannot be read may.
pub(crate) fn selects(policy: &[u8], session: &Session) -> bool {
    let direction = match policy.get(DIRECTION) {
        Some(0) => Direction::In,
        Some(1) => Direction::Out,
        // Of what is forwarded.
        Some(2) => return false,
        _ => return true,
    };
    let family = policy.get(FAMILY..FAMILY + 2).and_then(|bytes| bytes.try_into().ok());
    let is_its_family = match family.map(u16::from_ne_bytes).map(i32::from) {
        Some(libc::AF_INET) => session.family() == Family::V4,
        Some(libc::AF_INET6) => session.family() == Family::V6,
        _ => true,
    };
    let is_its_protocol =
        policy.get(PROTO).is_none_or(|proto| *proto == 0 || *proto == session.number());
    let [source, destination] = session.ends(direction);
    is_its_family
        && is_its_protocol
        && has_end(policy, [SADDR, PREFIX_S, SPORT], source)
        && has_end(policy, [0, PREFIX_D, DPORT], destination)
}

/// Whether the selector's address, its prefix length and its port with mask, which are there, may
/// be those of `end`.
fn has_end(policy: &[u8], places: [usize; 3], end: Option<SocketAddr>) -> bool {
    let Some(end) = end else { return true };
    let [address, prefix, port] = places;
    let bits = usize::from(policy.get(prefix).copied().unwrap_or_default());
    let has_address = octets(end.ip()).is_none_or(|ip| {
        let bits = bits.min(ip.len() * 8);
        let selected = policy.get(address..).unwrap_or_default();
        (0..bits).all(|bit| {
            let of = |bytes: &[u8]| bytes.get(bit / 8).map(|byte| byte >> (7 - bit % 8) & 1);
            of(&ip) == of(selected)
        })
    });
    let own = end.port().to_be_bytes();
    let has_port = (0..2).all(|at| {
        let mask = policy.get(port + 2 + at).copied().unwrap_or_default();
        policy.get(port + at).is_none_or(|byte| (byte ^ own[at]) & mask == 0)
    });
    has_address && has_port
}
