//! Changes of a host's routes and rules while a session is away: the session goes home in bounded
//! time or stays away as the kernel's own would stay, and no byte is lost.
//!
//! Needs root and network namespaces; a case is skipped with a message where the kernel lacks the
//! part. Not here: rules that stop packets (`network_rules`, `network_firewall`), programs that do
//! not obey (`network_ports`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{End, Host, Link};
use sojourn_system::LIMIT;
use sojourn_system::network::hosts;
use sojourn_system::talk::{PORT, Talk};
use std::time::{Duration, Instant};

/// Runs a command on a host; false, with a message, if it fails.
fn run(host: &Host, line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let done = host.run(words[0], &words[1..], LIMIT).unwrap();
    if done.status != 0 {
        eprintln!("skipped: {line}: {}", done.err);
    }
    done.status == 0
}

/// Makes the changes while a session is away, and `then` looks; then the changes are undone, and
/// the conversation goes on and ends with every byte right. PEER and DEV stand for the peer's
/// address and the interface.
fn changed(is_v6: bool, make: &[&str], undo: &str, then: fn(&mut Talk)) {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let text = |line: &str| {
        let peer = if is_v6 { link.v6(End::B).to_string() } else { link.v4(End::B).to_string() };
        line.replace("PEER", &peer).replace("DEV", link.interface())
    };
    let mut talk = Talk::start(&link, End::A, PORT, is_v6);
    talk.wait_until_away(true);
    if make.iter().all(|line| run(&a, &text(line))) {
        then(&mut talk);
        assert!(run(&a, &text(undo)));
    }
    talk.finish();
}

/// With its program's own socket the kernel would wait for the way, too.
#[test]
fn a_way_that_refuses_packets_for_a_moment_costs_no_byte() {
    for (is_v6, family) in [(false, "-4"), (true, "-6")] {
        for kind in ["unreachable", "blackhole", "prohibit"] {
            let route = |verb: &str| format!("ip {family} route {verb} {kind} PEER");
            changed(is_v6, &[&route("add")], &route("del"), stands_still);
        }
        let rule = |verb: &str| format!("ip {family} rule {verb} to PEER prohibit");
        changed(is_v6, &[&rule("add")], &rule("del"), stands_still);
    }
}

/// Waits until nothing is received any more.
fn stands_still(talk: &mut Talk) {
    let deadline = Instant::now() + LIMIT;
    let received = |talk: &mut Talk| -> u64 {
        talk.admin.away().unwrap().iter().map(|session| session.received).sum()
    };
    let mut last = received(talk);
    loop {
        assert!(Instant::now() < deadline, "it goes on");
        std::thread::sleep(Duration::from_millis(200));
        let now = received(talk);
        if std::mem::replace(&mut last, now) == now {
            return;
        }
    }
}

/// Its packets come by the bridge then, whose rules see them.
#[test]
fn a_session_goes_home_when_its_interface_becomes_a_port_of_a_bridge() {
    let make = ["ip link add bridge type bridge", "ip link set bridge up"];
    let make = [make[0], make[1], "ip link set DEV master bridge"];
    changed(false, &make, "ip link set DEV nomaster", |talk| talk.wait_until_away(false));
}

#[test]
fn a_session_goes_home_for_a_policy_and_for_a_zone() {
    let home = |talk: &mut Talk| talk.wait_for_reason("firewall");
    let policy = "ip xfrm policy add dst PEER dir out priority 5 action block";
    changed(false, &[policy], "ip xfrm policy delete dst PEER dir out", home);
    let zone = [
        "nft add table ip zones",
        "nft add chain ip zones early { type filter hook prerouting priority -300; }",
        "nft add rule ip zones early ct zone set 5",
    ];
    changed(false, &zone, "nft delete table ip zones", home);
}
