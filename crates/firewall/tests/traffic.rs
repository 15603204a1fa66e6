//! Filters of tc(8) at an interface: which of them keep its sessions.
//!
//! Skipped with a message where there are no hosts of the lab, or the kernel lacks a kind of
//! filter.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_firewall::{Firewall, Interface, Session};
use sojourn_lab::net::{Host, is_possible};
use sojourn_wire::Protocol;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Runs tc(8); within a word a tilde stands for a space.
fn tc(host: &Host, words: &str) -> bool {
    let words: Vec<String> = words.split(' ').map(|word| word.replace('~', " ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = host.run("tc", &words, LIMIT).unwrap();
    if done.status != 0 {
        eprintln!("skipped: tc {words:?}: {}", done.err);
    }
    done.status == 0
}

/// A filter, and whether it keeps the sessions of the interface.
const FILTERS: [(&str, bool); 11] = [
    ("ingress matchall action ok", true),
    ("ingress protocol ip u32 match ip dport 4000 0xffff flowid :1", true),
    ("egress matchall action ok", false),
    ("egress protocol ip u32 match ip dport 4000 0xffff flowid :1", false),
    // These may ask for the socket that sends, which is not the session's.
    ("egress protocol ip basic action ok", true),
    ("egress protocol ip cgroup", true),
    ("egress protocol ip bpf bytecode 1,6~0~0~0 flowid :1", true),
    ("parent 1: protocol ip bpf bytecode 1,6~0~0~0 flowid 1:1", true),
    ("parent 1: protocol ip cgroup", true),
    ("parent 1: protocol ip flow map key sk-uid baseclass 1:1", true),
    ("parent 1: protocol ip u32 match ip dport 4000 0xffff flowid 1:1", false),
];

#[test]
fn filters_that_may_ask_for_the_socket_keep_sessions() {
    if !is_possible() {
        return;
    }
    let host = Host::new().unwrap();
    if !tc(&host, "qdisc add dev lo clsact") {
        return;
    }
    // Without one of these the filters with a parent are skipped.
    let _ = ["prio", "htb", "drr"]
        .iter()
        .any(|kind| tc(&host, &format!("qdisc add dev lo root handle 1: {kind}")));
    for (filter, keeps) in FILTERS {
        if !tc(&host, &format!("filter add dev lo {filter}")) {
            continue;
        }
        let said = host.enter(|| {
            Firewall::new().program_concerning(&Session {
                protocol: Protocol::Tcp,
                local: "10.0.0.1:1".parse().unwrap(),
                remote: Some("10.0.0.2:4000".parse().unwrap()),
                interface: Some(Interface { index: 1, name: "lo".into() }),
                is_established: true,
            })
        });
        assert_eq!(said.unwrap().is_some(), keeps, "{filter}");
        let place = filter.split(" protocol").next().unwrap().split(" matchall").next().unwrap();
        assert!(tc(&host, &format!("filter del dev lo {place}")));
    }
}
