//! Rule sets as tools make them, loaded by the tools into a host of the lab and read from the
//! kernel: which sessions they let pass, and which rule concerns the others.
//!
//! Needs nft(8), iptables-nft(8) and iptables-legacy(8); where one is missing, or is not allowed,
//! its part is skipped with a message. Not here: sessions that really move
//! (`tests/system/tests/network_rules.rs`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_firewall::{Firewall, Interface, Session};
use sojourn_lab::net::{Host, is_possible};
use sojourn_wire::Protocol;
use std::net::SocketAddr;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// Returns an established TCP session of this host's `local` port.
fn tcp(local: u16) -> Session {
    Session {
        protocol: Protocol::Tcp,
        local: ([10, 1, 0, 1], local).into(),
        remote: Some(([10, 1, 0, 2], 5000).into()),
        interface: Some(Interface { index: 2, name: "eth0".into() }),
        is_established: true,
    }
}

fn udp(local: u16) -> Session {
    Session { protocol: Protocol::Udp, is_established: false, ..tcp(local) }
}

fn with(remote: &str, session: Session) -> Session {
    Session { remote: Some(remote.parse::<SocketAddr>().unwrap()), ..session }
}

fn untracked(session: Session) -> Session {
    Session { is_established: false, ..session }
}

fn v6(local: u16) -> Session {
    let local = format!("[fd00::1]:{local}").parse().unwrap();
    with("[fd00::2]:5000", Session { local, ..tcp(0) })
}

/// Makes a host with rules. Returns `None`, and prints the reason, where there are no hosts, or
/// where the tool cannot even do `harmless`, a command without an effect.
///
/// # Panics
/// If the tool can, but does not take the rules.
fn host(harmless: &[&str], load: &[&str]) -> Option<Host> {
    if !is_possible() {
        return None;
    }
    let host = Host::new().unwrap();
    match host.run(harmless[0], &harmless[1..], LIMIT) {
        Ok(done) if done.status == 0 => {}
        why => {
            eprintln!("skipped: {harmless:?}: {why:?}");
            return None;
        }
    }
    run(&host, load);
    Some(host)
}

fn run(host: &Host, words: &[&str]) {
    let done = host.run(words[0], &words[1..], LIMIT).unwrap();
    assert_eq!(done.status, 0, "{words:?}: {}", done.err);
}

/// Makes a host with rules of nftables: a file, or the text itself.
fn nft(words: &[&str]) -> Option<Host> {
    host(&["nft", "list", "ruleset"], &[&["nft"], words].concat())
}

fn file(name: &str) -> String {
    format!("{}/tests/rules/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A session, and what has to be in the name of the rule that concerns it; empty if none does.
type Case = (Session, &'static str);

/// Compares what the rules of a host say of sessions.
fn check(host: &Host, cases: &[Case]) {
    host.enter(|| {
        let firewall = Firewall::new();
        for (session, expected) in cases {
            let said = firewall.rule_concerning(session);
            let is_right = match &said {
                Some(rule) => !expected.is_empty() && rule.contains(expected),
                None => expected.is_empty(),
            };
            assert!(is_right, "{session:?}: {said:?}, expected {expected:?}");
        }
    })
    .unwrap();
}

fn check_nft(name: &str, cases: &[Case]) {
    if let Some(host) = nft(&["-f", &file(name)]) {
        check(&host, cases);
    }
}

/// Loads a file of iptables-save's format with both back ends. The cases hold for both.
fn check_iptables(name: &str, cases: &[Case]) {
    check_tables(["iptables-nft", "iptables-legacy"], name, cases);
}

fn check_tables(commands: [&str; 2], name: &str, cases: &[Case]) {
    for command in commands {
        let restore = format!("{command}-restore");
        if let Some(host) = host(&[command, "-S"], &[&restore, &file(name)]) {
            eprintln!("{command}:");
            check(&host, cases);
        }
    }
}

#[test]
fn a_typical_rule_set_of_debian() {
    check_nft(
        "debian.nft",
        &[
            (tcp(4000), ""),
            (v6(4000), ""),
            (tcp(9), ""),
            (untracked(tcp(4000)), "inet filter input, rule with handle"),
            (udp(53), "inet filter input, rule with handle"),
        ],
    );
}

#[test]
fn sets_maps_and_intervals() {
    check_nft(
        "stateless.nft",
        &[
            (tcp(80), ""),
            (tcp(4000), ""),
            (tcp(4010), ""),
            (tcp(4011), "inet plain in, policy"),
            (with("10.9.0.0:1", tcp(80)), "inet plain in, rule"),
            (with("10.9.255.255:1", tcp(80)), "inet plain in, rule"),
            (with("10.10.0.0:1", tcp(80)), ""),
            (with("192.0.2.1:1", tcp(80)), "inet plain in, rule"),
            (with("192.0.2.2:1", tcp(80)), ""),
            // Certainly in the set now, but not for ever.
            (with("10.8.0.1:1", tcp(80)), "inet plain in, rule"),
            (tcp(5000), ""),
            (tcp(5011), "inet plain in, policy"),
            (with("10.1.1.2:1", tcp(5000)), "inet plain in, policy"),
            (with("10.2.0.1:1", tcp(22)), ""),
            (tcp(6000), "inet plain in, rule"),
            (tcp(6001), "inet plain counted, rule"),
            (tcp(7001), ""),
            (Session { remote: None, ..udp(80) }, "inet plain in, rule"),
        ],
    );
}

#[test]
fn the_shape_of_firewalld() {
    check_nft(
        "firewalld.nft",
        &[
            (tcp(4000), ""),
            (tcp(9), ""),
            (untracked(tcp(9)), "inet firewalld filter_INPUT, rule"),
            // Whether the way back is missing only the kernel's routes say.
            (v6(4000), "inet firewalld filter_PREROUTING, rule"),
            // No datagram is certainly valid.
            (udp(137), "inet firewalld filter_INPUT, rule"),
        ],
    );
}

#[test]
fn the_shape_of_ufw() {
    check_iptables(
        "ufw.rules",
        &[(tcp(4000), ""), (tcp(9), ""), (untracked(tcp(9)), "ufw-"), (v6(9), "")],
    );
}

#[test]
fn the_shape_of_ufw_for_ipv6() {
    let cases = [
        (v6(4000), ""),
        (v6(9), ""),
        (untracked(v6(4000)), "chain"),
        (with("[fd00::3]:1", v6(9)), ""),
        (tcp(9), ""),
    ];
    check_tables(["ip6tables-nft", "ip6tables-legacy"], "ufw6.rules", &cases);
}

#[test]
fn the_shape_of_docker() {
    check_iptables(
        "docker.rules",
        &[
            (tcp(4000), ""),
            (tcp(8080), ""),
            (untracked(tcp(4000)), ""),
            (udp(53), ""),
            (Session { local: ([172, 17, 0, 2], 80).into(), ..tcp(80) }, "PREROUTING"),
        ],
    );
}

#[test]
fn matches_of_iptables() {
    check_iptables(
        "matches.rules",
        &[
            (tcp(4000), ""),
            (with("10.3.1.1:5000", tcp(4000)), "INPUT"),
            (tcp(7000), "INPUT"),
            (tcp(7001), ""),
            (tcp(7002), "INPUT"),
            (tcp(7005), "INPUT"),
            (tcp(7006), ""),
            (with("10.1.0.2:4999", tcp(4000)), "INPUT"),
            (tcp(7100), "INPUT"),
            (tcp(7200), "INPUT"),
            (tcp(7201), ""),
            (with("10.1.0.2:5100", tcp(4000)), ""),
            (with("10.1.0.2:5100", tcp(4001)), "INPUT"),
            (Session { interface: Some(wlan()), ..tcp(4000) }, "INPUT"),
            (Session { interface: None, ..tcp(4000) }, "INPUT"),
            (tcp(7300), "INPUT"),
            (tcp(7301), "INPUT"),
            (tcp(7302), "INPUT"),
            (tcp(7303), "side"),
            (tcp(7304), "INPUT"),
            (tcp(7305), "INPUT"),
            (udp(7000), "INPUT"),
            (udp(7001), ""),
            (v6(7000), ""),
        ],
    );
}

fn wlan() -> Interface {
    Interface { index: 3, name: "wlan0".into() }
}

/// A ban is an element of a set; the kernel tells of it.
#[test]
fn a_peer_that_is_banned() {
    let Some(host) = nft(&["-f", &file("fail2ban.nft")]) else { return };
    let change = |host: &Host, verb: &str| {
        run(host, &["nft", verb, "element", "inet", "f2b-table", "addr-set-sshd", "{ 10.1.0.2 }"]);
    };
    host.enter(|| {
        let mut firewall = Firewall::new();
        assert_eq!(firewall.rule_concerning(&tcp(22)), None);
        change(&host, "add");
        assert!(firewall.refresh(), "the kernel tells of the element");
        let said = firewall.rule_concerning(&tcp(22)).unwrap();
        assert!(said.contains("inet f2b-table f2b-chain, rule with handle"), "{said}");
        assert_eq!(firewall.rule_concerning(&with("10.1.0.3:9", tcp(22))), None);
        assert_eq!(firewall.rule_concerning(&tcp(80)), None);
        change(&host, "delete");
        assert!(firewall.refresh());
        assert_eq!(firewall.rule_concerning(&tcp(22)), None);
    })
    .unwrap();
}

/// What packets add to a set nobody tells, so a rule that looks there could always match.
#[test]
fn a_set_that_packets_change() {
    const RULES: &str = "table inet guard {
        set seen { type ipv4_addr; size 1024; flags dynamic,timeout; timeout 1m; }
        chain in { type filter hook input priority 0;
            tcp dport 22 add @seen { ip saddr }
            tcp dport 4000 ip saddr @seen drop
        }
    }";
    if let Some(host) = nft(&[RULES]) {
        check(&host, &[(tcp(22), "guard in"), (tcp(4000), "guard in"), (tcp(80), "")]);
    }
}

/// What only the kernel can do: log, limit, count, mark, redirect.
#[test]
fn expressions_with_an_effect_of_their_own() {
    const RULES: &str = "table inet acts {
        counter traffic { }
        set metered { type inet_service; counter; elements = { 7 } }
        chain in { type filter hook input priority 0;
            tcp dport 1 log
            tcp dport 2 limit rate 1/second accept
            tcp dport 3 counter
            tcp dport 4 counter name traffic accept
            tcp dport 5 meta mark set 1
            tcp dport 6 ct mark set 1
            tcp dport @metered accept
            tcp dport 8 ip ttl set 3
            tcp dport 9 meta nftrace set 1
            tcp dport 10 counter accept
            tcp dport 11 meta mark set tcp dport map { 11 : 3 }
            tcp dport 12 quota 10 mbytes accept
            tcp dport 13 reject
            tcp dport 14 ip dscp set cs1
            tcp dport 15 tcp option maxseg size set 500
            tcp dport 16 ip saddr 10.1.0.2 goto side
        }
        chain side { }
    }";
    let Some(host) = nft(&[RULES]) else { return };
    let harmless = [10, 16, 17];
    let cases: Vec<Case> = (1..18)
        .map(|port| (tcp(port), if harmless.contains(&port) { "" } else { "inet acts in" }))
        .collect();
    check(&host, &cases);
}
