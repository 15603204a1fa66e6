//! Routing rules of a host that send the packets of some sockets another way than those of others
//! with the same addresses: a session that is away would not go that way.
//!
//! Skipped with a message where there are no hosts of the lab.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_firewall::{Firewall, Session};
use sojourn_lab::net::{Host, is_possible};
use sojourn_wire::Protocol;

fn session(local: &str) -> Session {
    Session {
        protocol: Protocol::Tcp,
        local: local.parse().unwrap(),
        remote: None,
        interface: None,
        is_established: true,
    }
}

#[test]
fn rules_by_user_or_service_keep_sessions_as_long_as_they_are_there() {
    if !is_possible() {
        return;
    }
    let host = Host::new().unwrap();
    let mut firewall = host.enter(Firewall::new).unwrap();
    let (v4, v6) = (session("10.0.0.1:1"), session("[fd00::1]:1"));
    let mut change = |family: &str, verb: &str, rule: &str| {
        let words = [family, "rule", verb].into_iter().chain(rule.split(' '));
        host.ip(&words.collect::<Vec<_>>()).unwrap();
        host.enter(|| {
            assert!(firewall.refresh(), "{verb} {rule} is noticed");
            [&v4, &v6].map(|session| firewall.rule_concerning(session))
        })
        .unwrap()
    };
    for usual in ["from 10.0.0.0/8 table 7", "fwmark 5 table 7", "ipproto tcp dport 80 table 7"] {
        assert_eq!(change("-4", "add", usual), [None, None], "{usual}");
    }
    for (rule, by) in [
        ("uidrange 5000-5001 prio 70 table 7", "the user"),
        ("tos 0x10 prio 70 table 7", "the type of service"),
    ] {
        let [of_v4, of_v6] = change("-4", "add", rule);
        let said = of_v4.unwrap_or_default();
        assert!(said.contains(by) && said.contains("priority 70"), "{rule}: {said:?}");
        assert_eq!(of_v6, None, "{rule}");
        assert_eq!(change("-4", "del", rule), [None, None], "{rule}");
    }
    let [of_v4, of_v6] = change("-6", "add", "uidrange 0-0 table 7");
    assert_eq!((of_v4, of_v6.is_some()), (None, true));
}

/// A program that sends through its port need not ask for the way.
#[test]
fn routes_that_refuse_keep_sockets_without_a_peer() {
    if !is_possible() {
        return;
    }
    let host = Host::new().unwrap();
    let mut firewall = host.enter(Firewall::new).unwrap();
    let socket = Session { protocol: Protocol::Udp, ..session("10.0.0.1:1") };
    let connected = Session { remote: "10.0.0.2:1".parse().ok(), ..socket.clone() };
    let mut change = |words: &str| {
        host.ip(&words.split(' ').collect::<Vec<_>>()).unwrap();
        host.enter(|| {
            let has_changed = firewall.resurvey();
            assert_eq!(firewall.rule_concerning(&connected), None, "{words}");
            (has_changed, firewall.rule_concerning(&socket))
        })
        .unwrap()
    };
    assert_eq!(change("route add 10.7.0.0/16 dev lo"), (false, None));
    assert_eq!(change("route add unreachable default metric 999"), (false, None));
    for kind in ["blackhole", "unreachable", "prohibit"] {
        let (has_changed, said) = change(&format!("route add {kind} 169.254.169.254"));
        assert!(has_changed && said.is_some_and(|said| said.contains("refuses")), "{kind}");
        assert_eq!(change(&format!("route del {kind} 169.254.169.254")), (true, None), "{kind}");
    }
}
