//! IPsec policies of the kernel (`struct xfrm_userpolicy_info` of `linux/xfrm.h`): the match of a
//! policy's selector with a session.
//!
//! Not here: the transformations that a policy asks for. The engine has none of them, so a match is
//! enough to keep a session in the kernel.

use crate::session::{Direction, Family, Session, octets};
use std::net::SocketAddr;

/// Offsets of fields in a policy, whose selector comes first.
const SPORT: usize = 36;
const DPORT: usize = 32;
const SADDR: usize = 16;
const FAMILY: usize = 40;
const PREFIX_D: usize = 42;
const PREFIX_S: usize = 43;
const PROTO: usize = 44;
const DIRECTION: usize = 160;

/// `XFRM_USERPOLICY_BLOCK`.
const BLOCK: u8 = 1;

/// The policies of a network namespace.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    all: Vec<Vec<u8>>,
    /// Packets that no policy selects are dropped, in either direction.
    blocks_others: bool,
}

impl Policies {
    /// Takes in a policy.
    pub(crate) fn add(&mut self, policy: &[u8]) {
        self.all.push(policy.to_vec());
    }

    /// Takes in the defaults (`struct xfrm_userpolicy_default`): one each for packets that come in,
    /// are forwarded, and go out.
    pub(crate) fn set_default(&mut self, default: &[u8]) {
        self.blocks_others = [0, 2].iter().any(|at| default.get(*at) == Some(&BLOCK));
    }

    /// Returns true if no policy could say something about any session.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && !self.blocks_others
    }

    /// Returns the policy that could say something about the session's packets.
    pub(crate) fn concerning(&self, session: &Session) -> Option<String> {
        if self.all.iter().any(|policy| selects(policy, session)) {
            return Some("an IPsec policy (ip xfrm policy)".to_owned());
        }
        let default = "the default IPsec policy (ip xfrm policy getdefault)";
        self.blocks_others.then(|| default.to_owned())
    }
}

/// Returns true if the policy may select packets of the session. A malformed policy may.
pub(crate) fn selects(policy: &[u8], session: &Session) -> bool {
    let direction = match policy.get(DIRECTION) {
        Some(0) => Direction::In,
        Some(1) => Direction::Out,
        // `XFRM_POLICY_FWD`: selects forwarded packets only.
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

/// Returns true if `end` may match the selector's address, prefix length, and port with mask, which
/// lie at `places`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::Protocol;

    #[test]
    fn a_default_that_blocks_either_direction_concerns_every_session() {
        let session = Session {
            protocol: Protocol::Tcp,
            local: "10.1.0.1:80".parse().unwrap(),
            remote: "10.1.0.2:4000".parse().ok(),
            interface: None,
            is_established: true,
        };
        for (default, concerns) in
            [([0, 0, 0], false), ([2, 1, 2], false), ([1, 2, 2], true), ([2, 2, 1], true)]
        {
            let mut policies = Policies::default();
            policies.set_default(&default);
            assert_eq!(policies.concerning(&session).is_some(), concerns, "{default:?}");
            assert_eq!(policies.is_empty(), !concerns, "{default:?}");
        }
    }
}
