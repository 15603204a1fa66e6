//! Routing rules of this host (ip-rule(8)) that choose a way by more than a session's addresses,
//! protocol and ports.
//!
//! The way of a session's packets is asked for with these alone (`sojourn_carrier`). The kernel
//! also knows the socket's user, type of service and flow label, and a rule may go by them: some
//! hosts send the packets of certain users through a tunnel, or nowhere. Interfaces and marks need
//! no look: a socket that is bound to an interface or has a mark stays in the kernel for that. Not
//! here: reading the rules (`kernel`), and the routes.

use crate::attributes::{attributes, find};
use crate::session::{Family, Session};
use core::ops::RangeInclusive;

/// Length of `struct fib_rule_hdr`, and the places of its family and type of service.
const HEADER: usize = 12;
const FAMILY: usize = 0;
const TOS: usize = 3;
/// `FRA_PRIORITY`, `FRA_UID_RANGE`, `FRA_DSCP` and `FRA_FLOWLABEL` (`linux/fib_rules.h`).
const PRIORITY: u16 = 6;
const UID_RANGE: u16 = 20;
const DSCP: u16 = 25;
const FLOW_LABEL: u16 = 26;
/// The attributes that name addresses, interfaces, marks, protocol and ports, and those that say
/// what becomes of packets: up to `FRA_L3MDEV`, up to `FRA_DPORT_RANGE`, and the ports' masks.
const KNOWN: [RangeInclusive<u16>; 3] = [1..=19, 21..=24, 28..=29];

/// A routing rule whose choice the carrier cannot repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selective {
    family: u8,
    priority: u32,
    by: &'static str,
}

/// The rules of a network namespace that cannot be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoutingRules {
    selective: Vec<Selective>,
}

impl RoutingRules {
    /// Takes in a rule: `struct fib_rule_hdr` and attributes.
    pub(crate) fn add(&mut self, rule: &[u8]) {
        let Some(by) = selector(rule) else { return };
        let family = rule.get(FAMILY).copied().unwrap_or_default();
        let priority = find(rule.get(HEADER..).unwrap_or_default(), PRIORITY);
        let priority = priority.and_then(|bytes| bytes.try_into().ok());
        let priority = priority.map_or(0, u32::from_ne_bytes);
        self.selective.push(Selective { family, priority, by });
    }

    /// Returns true if no rule could concern any session.
    pub(crate) fn is_empty(&self) -> bool {
        self.selective.is_empty()
    }

    /// Returns the rule by which the session's packets could go another way.
    pub(crate) fn concerning(&self, session: &Session) -> Option<String> {
        let is_its_family = |family: u8| match i32::from(family) {
            libc::AF_INET => session.family() == Family::V4,
            libc::AF_INET6 => session.family() == Family::V6,
            _ => true,
        };
        let found = self.selective.iter().find(|rule| is_its_family(rule.family))?;
        let Selective { priority, by, .. } = found;
        Some(format!("the routing rule with priority {priority} (ip rule), which goes by {by}"))
    }
}

/// Returns what the rule goes by that the carrier cannot repeat. A malformed rule may go by
/// anything.
fn selector(rule: &[u8]) -> Option<&'static str> {
    let unknown = "something that is not understood";
    let (Some(tos), Some(rest)) = (rule.get(TOS), rule.get(HEADER..)) else { return Some(unknown) };
    if *tos != 0 {
        return Some("the type of service");
    }
    attributes(rest).find_map(|attribute| match attribute.kind {
        UID_RANGE => Some("the user"),
        DSCP => Some("the type of service"),
        FLOW_LABEL => Some("the flow label"),
        kind if KNOWN.iter().any(|range| range.contains(&kind)) => None,
        _ => Some(unknown),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::Protocol;

    fn rule(family: i32, tos: u8, kinds: &[u16]) -> Vec<u8> {
        let mut bytes = vec![family as u8, 0, 0, tos, 254, 0, 0, 1, 0, 0, 0, 0];
        for kind in kinds {
            bytes.extend(8u16.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(7u32.to_ne_bytes());
        }
        bytes
    }

    fn said(rules: &[Vec<u8>], local: &str) -> Option<String> {
        let session = Session {
            protocol: Protocol::Tcp,
            local: local.parse().unwrap(),
            remote: None,
            interface: None,
            is_established: true,
        };
        let mut all = RoutingRules::default();
        rules.iter().for_each(|rule| all.add(rule));
        assert_eq!(all.is_empty(), all.selective.is_empty());
        all.concerning(&session)
    }

    #[test]
    fn rules_that_go_by_what_is_not_asked_for_concern_sessions_of_their_family() {
        let (v4, v6) = ("10.0.0.1:1", "[fd00::1]:1");
        for usual in
            [rule(libc::AF_INET, 0, &[6, 15]), rule(libc::AF_INET, 0, &[1, 10, 16, 22, 29])]
        {
            assert_eq!(said(&[usual], v4), None);
        }
        for (kinds, tos) in [(&[6, 20][..], 0), (&[25], 0), (&[26], 0), (&[99], 0), (&[], 16)] {
            let rules = [rule(libc::AF_INET, tos, kinds)];
            assert!(said(&rules, v4).is_some(), "{kinds:?} {tos}");
            assert_eq!(said(&rules, v6), None, "{kinds:?} {tos}");
        }
        assert!(said(&[rule(libc::AF_INET6, 0, &[6, 20])], v6).unwrap().contains("priority 7"));
        assert!(said(&[vec![0; 5]], v6).is_some(), "malformed");
    }
}
