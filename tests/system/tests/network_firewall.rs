//! Hosts with packet filters of their own that track connections: sessions come home through them,
//! and those that they translate stay.
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
        let mut worlds = [End::A, End::B].map(|end| Sandbox::on(link.host(end)).unwrap());
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
    let deadline = Instant::now() + LIMIT;
    let said = loop {
        let said = talk.worlds[talk.under as usize].sojourn(&["ss", "--json"]).unwrap();
        if said.contains("\"translated\"") {
            break said;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(20));
    };
    println!("{said}");
    talk.finish();
}
