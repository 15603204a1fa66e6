//! Entry point for fuzzing: arbitrary bytes in place of the kernel's answers about packet filters
//! and policies.
//!
//! The properties: no panic, termination, and an answer for every session. In debug and fuzzing
//! builds only; no part of this crate's interface. Used by `tests/targets` and
//! `fuzz/fuzz_targets/firewall_rules.rs`.

use crate::attributes::messages;
use crate::policies::selects;
use crate::routing::RoutingRules;
use crate::ruleset::{ELEMENTS, Ruleset};
use crate::session::{Family, Interface, Session};
use crate::tables::{INFO_LEN, Listing, Table, entries_len};
use sojourn_wire::Protocol;

/// Returns sessions of each kind: TCP and UDP, both families, with and without a peer.
fn sessions() -> Vec<Session> {
    let ends = [("10.1.0.1:80", Some("10.1.0.2:4000")), ("[fd00::1]:80", Some("[fd00::2]:4000"))];
    let of = |protocol, local: &str, remote: Option<&str>| {
        let local = local.parse().ok()?;
        let remote = remote.and_then(|remote| remote.parse().ok());
        let interface = Some(Interface { index: 2, name: "eth0".into() });
        Some(Session { protocol, local, remote, interface, is_established: remote.is_some() })
    };
    let known = ends.into_iter().flat_map(|(local, remote)| {
        [Protocol::Tcp, Protocol::Udp].map(|protocol| of(protocol, local, remote))
    });
    known.chain([of(Protocol::Udp, "0.0.0.0:53", None)]).flatten().collect()
}

/// Parses bytes. The first byte chooses the meaning of the others: a dump of nftables, a policy, or
/// a table of iptables.
pub fn rules(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    for session in sessions() {
        match choice % 4 {
            0 | 1 => {
                let mut ruleset = Ruleset::default();
                // Elements come behind their sets, which are read when all rules are known.
                messages(bytes).for_each(|message| ruleset.add(message));
                let sets = ruleset.begin_sets();
                messages(bytes).filter(|one| one.kind == ELEMENTS).for_each(|one| ruleset.add(one));
                sets.iter().for_each(|set| ruleset.end_set(set, true));
                let says = ruleset.concerning(&session).is_some();
                assert!(!says || !ruleset.is_empty(), "without a hook nothing is said");
            }
            2 => {
                let _ = selects(bytes, &session);
                let mut routing = RoutingRules::default();
                routing.add(bytes);
                drop(routing.concerning(&session));
            }
            _ => {
                let (info, entries) = bytes.split_at(bytes.len().min(INFO_LEN));
                let family = if choice & 4 == 0 { Family::V4 } else { Family::V6 };
                let _ = entries_len(info);
                let listing = Listing { info, entries };
                let _ = Table::new(family, "filter", Some(listing)).concerning(&session);
            }
        }
    }
}
