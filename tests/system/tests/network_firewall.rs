//! Hosts with packet filters of their own that track connections: sessions come home through them,
//! those that they translate stay, and so do those about which a rule could say something.
//!
//! Needs nft(8) and a kernel that tracks, and says so if they cannot be had.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::hosts;
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

const PORT: u16 = 4000;
/// Nothing is let in but what belongs to a connection, and nothing that the tracking finds no sense
/// in is let out.
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
/// Who calls port 81 speaks with the one who listens on 4000.
const TRANSLATING: &str = "
table inet translating {
  chain in { type nat hook prerouting priority -100; tcp dport 81 redirect to :4000; }
}";

/// Drops some packets of the conversation, but none that comes.
const DOUBTFUL: &str = "
table inet doubtful {
  chain in { type filter hook input priority 0; tcp dport 4000 tcp flags & urg == urg drop; }
}";
/// Drops all that the one who listens on 4000 hears, or says.
const DEAF: &str = "
table inet shut {
  chain in { type filter hook input priority 0; tcp dport 4000 drop; }
}";
const MUTE: &str = "
table inet shut {
  chain out { type filter hook output priority 0; tcp sport 4000 drop; }
}";
/// A rule for others.
const OTHERS: &str = "
table inet others {
  chain in { type filter hook input priority 0; tcp dport 22 drop; udp dport 53 drop; }
}";

/// Gives a host rules. False, and it is said, if it cannot have them.
fn rule(host: &Host, text: &str) -> bool {
    let done = host.run("nft", &[text], LIMIT);
    match done {
        Ok(done) if done.status == 0 => true,
        why => {
            eprintln!("skipped: no rules: {why:?}");
            false
        }
    }
}

/// How the listener is called.
struct Called {
    port: u16,
    is_v6: bool,
}

/// Two programs that talk with each other through `port`, the host at `under` with Sojourn.
struct Talk {
    worlds: [Sandbox; 2],
    under: End,
    running: [Running; 2],
    admin: Admin,
    end: String,
}

impl Talk {
    fn start(link: &Link, under: End, port: u16, is_v6: bool) -> Self {
        let worlds = [End::A, End::B].map(|end| Sandbox::on(link.host(end)).unwrap());
        Self::within(worlds, link, under, Called { port, is_v6 })
    }

    fn within(mut worlds: [Sandbox; 2], link: &Link, under: End, called: Called) -> Self {
        let Called { port, is_v6 } = called;
        for world in &mut worlds {
            world.set("MOVE_AFTER_CALLS", "4");
        }
        let end = worlds[0].folder().join("end").to_string_lossy().into_owned();
        let ip = if is_v6 { format!("[{}]", link.v6(End::A)) } else { link.v4(End::A).to_string() };
        let start = |at: End, role: &str, port: u16| {
            let world = &worlds[at as usize];
            let mode = if at == under { Mode::Sojourn } else { Mode::Plain };
            let mut command = world.command(mode, world.built().path("lab-peer"));
            command.args([role, "tcp", &format!("{ip}:{port}"), "--until", &end]);
            Running::start(command).unwrap()
        };
        let running = [start(End::A, "serve", PORT), start(End::B, "call", port)];
        let admin = Admin::new(&worlds[under as usize]).unwrap();
        Self { worlds, under, running, admin, end }
    }

    fn moves(&mut self) -> u64 {
        self.admin.moves().unwrap().0
    }

    /// Until the server has told that reason of a session.
    fn wait_for_reason(&self, word: &str) {
        let world = &self.worlds[self.under as usize];
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = world.sojourn(&["ss", "--json"]).unwrap();
            if said.contains(&format!("\"{word}\"")) {
                return;
            }
            assert!(Instant::now() < deadline, "{word}: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_until_away(&mut self, is_away: bool) {
        let deadline = Instant::now() + LIMIT;
        while self.admin.away().unwrap().is_empty() == is_away {
            assert!(Instant::now() < deadline, "away: {is_away}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Both go on to the end of the conversation, and find every byte right.
    fn finish(self) {
        std::fs::write(&self.end, "").unwrap();
        let ended = self.running.map(|peer| peer.finish(LIMIT).unwrap());
        assert!(ended.iter().all(|peer| peer.status == 0), "{ended:#?}");
    }
}

#[test]
fn sessions_come_home_through_a_stateful_firewall() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if ![&a, &b].iter().all(|host| rule(host, STATEFUL)) {
        return;
    }
    for (under, is_v6) in [(End::A, false), (End::B, false), (End::A, true)] {
        let mut talk = Talk::start(&link, under, PORT, is_v6);
        let deadline = Instant::now() + LIMIT;
        while talk.moves() < 10 {
            assert!(Instant::now() < deadline, "{under:?}: it does not move");
            talk.admin.recall_all().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        // It is over sooner or later: a FIN that is dropped is said again, but nobody answers it.
        talk.finish();
    }
}

#[test]
fn a_translated_session_stays_in_the_kernel() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    // The server's own port is not the one on the wire.
    if !rule(link.host(End::A), TRANSLATING) {
        return;
    }
    let talk = Talk::start(&link, End::A, 81, false);
    talk.wait_for_reason("translated");
    talk.finish();
}

#[test]
fn a_session_that_a_rule_could_stop_stays_in_the_kernel() {
    let Some((a, b)) = hosts() else { return };
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
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for rules in [DEAF, MUTE] {
        let mut talk = Talk::start(&link, End::A, PORT, false);
        talk.wait_until_away(true);
        if !rule(link.host(End::A), rules) {
            return talk.finish();
        }
        talk.wait_until_away(false);
        // Nothing comes through meanwhile, so that it cannot be hot again.
        assert!(rule(link.host(End::A), "delete table inet shut"));
        talk.finish();
    }
}

#[test]
fn a_session_stays_away_from_rules_for_others() {
    let Some((a, b)) = hosts() else { return };
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
    let Some((a, b)) = hosts() else { return };
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
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    if !rule(link.host(End::A), DOUBTFUL) {
        return;
    }
    let worlds = [End::A, End::B].map(|end| Sandbox::past_firewalls(link.host(end)).unwrap());
    let mut talk = Talk::within(worlds, &link, End::A, Called { port: PORT, is_v6: false });
    talk.wait_until_away(true);
    talk.finish();
}
