//! Tests of UDP over bad links, while sockets move out and home: a program gets every datagram that
//! the link delivered undamaged, as it was sent and as often as it was delivered; no program gets a
//! damaged one.
//!
//! The link's own counters give the exact numbers. Not here: answers of routers
//! (`network_udp_paths.rs`), good links (`network_udp_moves.rs`). Needs root and network
//! namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{Conditions, End, Host, Link};
use sojourn_session::{KindT, SessionInfoT};
use sojourn_system::network::{Accelerated, Stage, await_bound, hosts};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of bursts under each condition, and number of recalls of the sockets.
const BURSTS: u64 = 40;
const RECALLS: u64 = 6;
/// Number of datagrams past the kernel before a socket is recalled.
const STAY: u64 = 200;

/// Two programs, and the link between them.
struct Exchange<'l> {
    link: &'l Link,
    stage: Stage,
    admins: Vec<Admin>,
    /// Streams that were recalled.
    known: Vec<u64>,
    serves: Running,
    calls: Running,
    is_v6: bool,
    what: String,
}

impl<'l> Exchange<'l> {
    fn start(link: &'l Link, accelerated: Accelerated, is_v6: bool, has_ports: bool) -> Self {
        let stage = Stage::either(link, accelerated, has_ports).unwrap();
        let address = if is_v6 { link.v6(End::A).to_string() } else { stage.address.clone() };
        let port = stage.port.to_string();
        let start = |end, role: &str| {
            let mut command = stage.command(end, "python3");
            let script = stage.programs().join("net/udp_weather.py");
            command.arg(script).args([role, &*address, &*port]);
            Running::start(command).unwrap()
        };
        let serves = start(End::A, "serve");
        await_bound(link.host(End::A), stage.port).unwrap();
        let calls = start(End::B, "call");
        let admins = stage.admins().unwrap();
        let what = format!("{accelerated:?}, IPv6: {is_v6}, ports: {has_ports}");
        Self { link, stage, admins, known: Vec::new(), serves, calls, is_v6, what }
    }

    fn wait_for<T>(&mut self, what: &str, mut ask: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            let are_running = self.calls.is_running() && self.serves.is_running();
            let is_well = are_running && Instant::now() < deadline;
            if !is_well {
                let away: Vec<_> = self.admins.iter_mut().map(|admin| admin.away()).collect();
                panic!("{}: {what}; the programs run: {are_running}; {away:?}", self.what);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reads the number in a file that a program has written, or is to read.
    fn told(&self, suffix: &str) -> Option<u64> {
        let path = self.stage.end_file().with_extension(suffix);
        std::fs::read_to_string(path).ok()?.parse().ok()
    }

    /// Recalls the sockets if each is away anew, and has received datagrams past the kernel.
    /// Returns true if they were.
    fn recall(&mut self) -> bool {
        let mut found = Vec::new();
        for admin in &mut self.admins {
            let mut away = admin.away().unwrap().into_iter();
            let is_it = |one: &SessionInfoT| is_used(one) && !self.known.contains(&one.stream);
            let Some(one) = away.find(is_it) else { return false };
            found.push(one);
        }
        for (admin, one) in self.admins.iter_mut().zip(found) {
            self.known.push(one.stream);
            admin.recall_of(&[one.pid]).unwrap();
        }
        true
    }

    /// Sets conditions for the link, under which some bursts and some moves take place.
    fn endure(&mut self, conditions: Conditions) {
        for end in [End::A, End::B] {
            self.link.set_conditions(end, conditions).unwrap();
        }
        let begun = self.told("bursts").unwrap_or(0);
        for _ in 0..RECALLS {
            self.wait_for("sockets that are used away", |it| it.recall().then_some(()));
        }
        self.wait_for("bursts", |it| (it.told("bursts")? >= begun + BURSTS).then_some(()));
    }

    /// Ends the exchange: the programs must have received every undamaged datagram. `before`: the
    /// numbers of frames that the link had delivered before the programs began.
    fn finish(mut self, before: [u64; 2]) {
        std::fs::write(self.stage.end_file(), "").unwrap();
        let sent = self.wait_for("the last burst", |it| it.told("sent"));
        let Self { link, stage, what, .. } = self;
        // On a link with IPv6 the kernels send frames of their own, so the link's counters do not
        // apply; but that link loses nothing.
        let count =
            |end| if self.is_v6 { sent } else { delivered(link, end) - before[end as usize] };
        let to_server = count(End::B);
        tell(&stage, "server", to_server);
        let served = self.serves.finish(LIMIT).unwrap();
        // The server has sent every datagram back.
        let to_client = count(End::A);
        tell(&stage, "client", to_client);
        let called = self.calls.finish(LIMIT).unwrap();
        let moves = stage.moves().unwrap();
        println!("{what}: {sent} sent, {moves} moves; {} {}", served.out, called.out);
        for (ended, expected) in [(served, to_server), (called, to_client)] {
            assert_eq!(ended.status, 0, "{what}: {ended:#?}");
            let output: serde_json::Value = serde_json::from_str(ended.out.trim()).unwrap();
            assert_eq!(output["total"], expected, "{what}: of {sent}: {output}");
        }
        stage.end().unwrap();
    }
}

/// Tells a program how many datagrams it has to have received.
fn tell(stage: &Stage, name: &str, number: u64) {
    let path = stage.end_file().with_extension("told");
    std::fs::write(&path, number.to_string()).unwrap();
    std::fs::rename(&path, path.with_extension(name)).unwrap();
}

fn is_used(one: &SessionInfoT) -> bool {
    one.kind == KindT::Udp && one.datagrams_received >= STAY
}

/// Returns the number of frames that a host has sent on the link.
fn put_on(link: &Link, end: End) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let text = link.host(end).enter(read).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(link.interface())).unwrap();
    line.trim_start_matches(':').split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// Waits until no frame of this end is in flight; returns the number of those that the link has
/// delivered undamaged.
fn delivered(link: &Link, from: End) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = link.counts(from).unwrap();
        let went = now.delivered + now.refused + now.lost + now.overflowed;
        if now.offered == put_on(link, from) && now.offered + now.duplicated == went {
            return now.delivered - now.corrupted;
        }
        assert!(Instant::now() < deadline, "frames stay on the link: {now:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes a link on which only the programs send: neighbours are known, and IPv6 is off unless it is
/// wanted.
fn quiet_link(a: &Host, b: &Host, is_v6: bool) -> Link {
    let link = Link::through(a, b, 1500, 17, Conditions::default()).unwrap();
    for end in [End::A, End::B] {
        let (host, mac) = (link.host(end), link.mac(end.other()));
        let address = match is_v6 {
            true => link.v6(end.other()).to_string(),
            false => link.v4(end.other()).to_string(),
        };
        let words = ["neighbour", "replace", &address, "lladdr", &mac, "nud", "permanent"];
        host.ip(&[&words[..], &["dev", link.interface()]].concat()).unwrap();
        if !is_v6 {
            host.set("ipv6/conf/all/disable_ipv6", "1").unwrap();
        }
    }
    link
}

const BASE: Conditions = Conditions {
    loss: 0.0,
    duplicate: 0.0,
    corrupt: 0.0,
    mark: 0.0,
    reorder: 0.0,
    reorder_by: Duration::from_millis(2),
    delay: Duration::from_micros(200),
    jitter: Duration::ZERO,
    rate: None,
    queue_bytes: 256 << 10,
};

/// Loss, duplication and reordering; then damage, which no datagram may survive.
const BAD: [Conditions; 2] = [
    Conditions { loss: 0.1, duplicate: 0.05, reorder: 0.1, ..BASE },
    Conditions { corrupt: 0.1, jitter: Duration::from_millis(1), ..BASE },
];
/// No loss, for IPv6. No damage either, because no checksum covers all of IPv6's header.
const LATE: [Conditions; 1] =
    [Conditions { reorder: 0.1, jitter: Duration::from_millis(1), ..BASE }];

fn play(accelerated: Accelerated, is_v6: bool, has_ports: bool) {
    let Some([a, b]) = hosts() else { return };
    let link = quiet_link(&a, &b, is_v6);
    let before = [End::A, End::B].map(|end| delivered(&link, end));
    let mut exchange = Exchange::start(&link, accelerated, is_v6, has_ports);
    for conditions in if is_v6 { &LATE[..] } else { &BAD } {
        exchange.endure(*conditions);
    }
    exchange.finish(before);
}

#[test]
fn what_is_delivered_comes_and_nothing_else() {
    for accelerated in
        [Accelerated::Neither, Accelerated::Server, Accelerated::Client, Accelerated::Both]
    {
        play(accelerated, false, false);
    }
}

#[test]
fn over_ipv6() {
    play(Accelerated::Both, true, false);
}

#[test]
fn through_ports() {
    play(Accelerated::Both, false, true);
    play(Accelerated::Both, true, true);
}
