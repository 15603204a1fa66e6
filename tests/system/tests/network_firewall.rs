//! Tests of hosts with packet filters of their own that track connections: sessions come home
//! through them; sessions whose addresses they translate stay in the kernel, and so do sessions
//! that a rule could affect.
//!
//! Needs nft(8) and a kernel with connection tracking; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Sandbox;
use sojourn_lab::control_group::{ControlGroup, Packets};
use sojourn_lab::net::{End, Link};
use sojourn_system::LIMIT;
use sojourn_system::network::hosts;
use sojourn_system::talk::{Called, PORT, Talk, rule};
use std::time::{Duration, Instant};

/// Lets in only packets of known connections, and lets out no packet that connection tracking finds
/// invalid.
const STATEFUL: &str = "
table inet strict {
  chain in {
    type filter hook input priority 0; policy drop;
    meta l4proto { icmp, ipv6-icmp } accept
    ct state invalid drop
    ct state established,related accept
    tcp dport 4000 ct state new tcp flags & (syn | ack) == syn accept
  }
  chain out {
    type filter hook output priority 0; policy accept;
    ct state invalid drop
  }
}";
/// Redirects connections to port 81 to the listener on 4000.
const TRANSLATING: &str = "
table inet translating {
  chain in { type nat hook prerouting priority -100; tcp dport 81 redirect to :4000; }
}";

/// Would drop some packets of the conversation, but none that really comes.
const DOUBTFUL: &str = "
table inet doubtful {
  chain in { type filter hook input priority 0; tcp dport 4000 tcp flags & urg == urg drop; }
}";
/// Drops all packets to the listener on 4000; below, all packets from it.
const DEAF: &str = "
table inet shut {
  chain in { type filter hook input priority 0; tcp dport 4000 drop; }
}";
const MUTE: &str = "
table inet shut {
  chain out { type filter hook output priority 0; tcp sport 4000 drop; }
}";
/// A rule for other packets.
const OTHERS: &str = "
table inet others {
  chain in { type filter hook input priority 0; tcp dport 22 drop; udp dport 53 drop; }
}";

#[test]
fn sessions_come_home_through_a_stateful_firewall() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if ![&a, &b].iter().all(|host| rule(host, STATEFUL)) {
        return;
    }
    for (accelerated, is_v6) in [(End::A, false), (End::B, false), (End::A, true)] {
        let mut talk = Talk::start(&link, accelerated, PORT, is_v6);
        let deadline = Instant::now() + LIMIT;
        while talk.moves() < 10 {
            assert!(Instant::now() < deadline, "{accelerated:?}: it does not move");
            talk.admin.recall_all().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        // The end may take a while: a dropped FIN is sent again, but nothing answers it.
        talk.finish();
    }
}

#[test]
fn a_translated_session_stays_in_the_kernel() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    // The listener's own port differs from the port on the wire.
    if !rule(link.host(End::A), TRANSLATING) {
        return;
    }
    let talk = Talk::start(&link, End::A, 81, false);
    talk.wait_for_reason("translated");
    talk.finish();
}

#[test]
fn a_session_that_a_rule_could_stop_stays_in_the_kernel() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if !rule(link.host(End::A), DOUBTFUL) {
        return;
    }
    let mut talk = Talk::start(&link, End::A, PORT, false);
    talk.wait_for_reason("firewall");
    assert_eq!(talk.moves(), 0);
    talk.finish();
}

#[test]
fn a_session_goes_home_when_a_rule_is_added_that_stops_it() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for rules in [DEAF, MUTE] {
        let mut talk = Talk::start(&link, End::A, PORT, false);
        talk.wait_until_away(true);
        if !rule(link.host(End::A), rules) {
            return talk.finish();
        }
        talk.wait_until_away(false);
        // Nothing comes through meanwhile, so the session cannot become hot again.
        assert!(rule(link.host(End::A), "delete table inet shut"));
        talk.finish();
    }
}

#[test]
fn a_session_stays_away_from_rules_for_others() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if !rule(link.host(End::A), OTHERS) {
        return;
    }
    let mut talk = Talk::start(&link, End::A, PORT, false);
    talk.wait_until_away(true);
    talk.finish();
}

#[test]
fn a_session_that_an_ipsec_policy_selects_stays_in_the_kernel() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let ends = [End::A, End::B].map(|end| format!("{}/32", link.v4(end)));
    let words = ["xfrm", "policy", "add", "src", &ends[0], "dst", &ends[1], "dir", "out"];
    let done = link.host(End::A).run("ip", &words, LIMIT).unwrap();
    if done.status != 0 {
        return eprintln!("skipped: no policies: {done:?}");
    }
    let mut talk = Talk::start(&link, End::A, PORT, false);
    talk.wait_for_reason("firewall");
    assert_eq!(talk.moves(), 0);
    talk.finish();
}

#[test]
fn rules_are_ignored_where_the_administrator_says_so() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if !rule(link.host(End::A), DOUBTFUL) {
        return;
    }
    let worlds = [End::A, End::B].map(|end| Sandbox::past_firewalls(link.host(end)).unwrap());
    let mut talk = Talk::within(worlds, &link, End::A, Called { port: PORT, is_v6: false });
    talk.wait_until_away(true);
    talk.finish();
}

/// The listener's programs of a control group; `None`, and a message, if it cannot have any.
fn group() -> Option<ControlGroup> {
    let group = ControlGroup::new().and_then(|group| {
        let program = group.attach(Packets::Incoming, true)?;
        group.detach(Packets::Incoming, &program)?;
        Ok(group)
    });
    group.map_err(|error| eprintln!("skipped: no control group: {error:#}")).ok()
}

/// What the kernel's own socket would be subject to, as systemd's `IPAddressDeny=`.
#[test]
fn a_session_with_programs_of_its_control_group_stays_in_the_kernel() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for packets in [Packets::Incoming, Packets::Outgoing] {
        let Some(group) = group() else { return };
        let _program = group.attach(packets, true).unwrap();
        let worlds = [End::A, End::B].map(|end| Sandbox::on(link.host(end)).unwrap());
        let called = Called { port: PORT, is_v6: packets == Packets::Outgoing };
        let mut talk = Talk::grouped(worlds, &link, End::A, called, &group);
        talk.wait_for_reason("firewall");
        assert_eq!(talk.moves(), 0);
        talk.finish();
    }
}

#[test]
fn a_session_goes_home_when_its_control_group_gets_a_program() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let (Some(group), Some(other)) = (group(), group()) else { return };
    let _program = other.attach(Packets::Incoming, false).unwrap();
    let worlds = [End::A, End::B].map(|end| Sandbox::on(link.host(end)).unwrap());
    let called = Called { port: PORT, is_v6: false };
    let mut talk = Talk::grouped(worlds, &link, End::A, called, &group);
    // Another group's programs are not its own.
    talk.wait_until_away(true);
    let program = group.attach(Packets::Incoming, false).unwrap();
    talk.wait_for_reason("firewall");
    group.detach(Packets::Incoming, &program).unwrap();
    talk.finish();
}

#[test]
fn a_session_goes_home_when_its_interface_gets_a_traffic_filter() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let host = link.host(End::A);
    let device = link.interface();
    let tc = |words: &[&str]| {
        let done = host.run("tc", words, LIMIT).unwrap();
        if done.status != 0 {
            eprintln!("skipped: no traffic filters: {done:?}");
        }
        done.status == 0
    };
    let mut talk = Talk::start(&link, End::A, PORT, false);
    talk.wait_until_away(true);
    let place = ["filter", "add", "dev", device, "ingress", "protocol", "ip"];
    let filter = ["u32", "match", "ip", "dport", "4000", "0xffff", "flowid", ":1"];
    if tc(&["qdisc", "add", "dev", device, "clsact"]) && tc(&[&place[..], &filter].concat()) {
        talk.wait_for_reason("firewall");
        assert!(tc(&["filter", "del", "dev", device, "ingress"]));
    }
    talk.finish();
}

#[test]
fn a_session_stays_in_the_kernel_where_ipsec_drops_what_no_policy_selects() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let ip = |words: &[&str]| {
        let done = link.host(End::A).run("ip", words, LIMIT).unwrap();
        if done.status != 0 {
            eprintln!("skipped: no default policies: {done:?}");
        }
        done.status == 0
    };
    let mut talk = Talk::start(&link, End::A, PORT, false);
    talk.wait_until_away(true);
    if ip(&["xfrm", "policy", "setdefault", "in", "block"]) {
        talk.wait_for_reason("firewall");
        assert!(ip(&["xfrm", "policy", "setdefault", "in", "accept"]));
    }
    talk.finish();
}
