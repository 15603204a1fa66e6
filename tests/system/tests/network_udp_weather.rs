//! UDP over bad links, while sockets move out and home: what the link has delivered undamaged the
//! program gets, each datagram as it was sent and as often as it came; what was damaged nobody
//! gets.
//!
//! The link's own counts say how many that is, to the last one. Not here: what routers answer
//! (`network_udp_paths.rs`), good links (`network_udp_moves.rs`). Needs root and network
//! namespaces, and says so if they cannot be had.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{Conditions, End, Host, Link};
use sojourn_session::{KindT, SessionInfoT};
use sojourn_system::network::{Stage, Under, await_bound, hosts};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// How long anything that is waited for may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bursts in each weather, and how often the sockets are sent home in it.
const BURSTS: u64 = 40;
const RECALLS: u64 = 6;
/// A socket that is away is left there until so many datagrams have come past the kernel.
const STAY: u64 = 200;

/// Two programs, and the link between them.
struct Exchange<'l> {
    link: &'l Link,
    stage: Stage,
    admins: Vec<Admin>,
    /// Streams that were sent home.
    known: Vec<u64>,
    serves: Running,
    calls: Running,
    is_v6: bool,
    what: String,
}

impl<'l> Exchange<'l> {
    fn start(link: &'l Link, under: Under, is_v6: bool, has_ports: bool) -> Self {
        let stage = Stage::either(link, under, has_ports).unwrap();
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
        let what = format!("{under:?}, IPv6: {is_v6}, ports: {has_ports}");
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

    /// The number in a file that the programs write, or are told by.
    fn told(&self, suffix: &str) -> Option<u64> {
        let path = self.stage.end_file().with_extension(suffix);
        std::fs::read_to_string(path).ok()?.parse().ok()
    }

    /// Sends the sockets home once each is away anew, and has received datagrams past the kernel;
    /// whether they were.
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

    /// The weather lasts for some bursts and some moves.
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

    /// All that has come undamaged was given to the programs. `before`: frames that the link had
    /// delivered before they began.
    fn finish(mut self, before: [u64; 2]) {
        std::fs::write(self.stage.end_file(), "").unwrap();
        let sent = self.wait_for("the last burst", |it| it.told("sent"));
        let Self { link, stage, what, .. } = self;
        // On a link with IPv6 others speak, too; nothing is lost on it.
        let count =
            |end| if self.is_v6 { sent } else { delivered(link, end) - before[end as usize] };
        let to_server = count(End::B);
        tell(&stage, "server", to_server);
        let served = self.serves.finish(LIMIT).unwrap();
        // It has sent everything back.
        let to_client = count(End::A);
        tell(&stage, "client", to_client);
        let called = self.calls.finish(LIMIT).unwrap();
        let moves = stage.moves().unwrap();
        println!("{what}: {sent} sent, {moves} moves; {} {}", served.out, called.out);
        for (ended, expected) in [(served, to_server), (called, to_client)] {
            assert_eq!(ended.status, 0, "{what}: {ended:#?}");
            let said: serde_json::Value = serde_json::from_str(ended.out.trim()).unwrap();
            assert_eq!(said["total"], expected, "{what}: of {sent}: {said}");
        }
        stage.end().unwrap();
    }
}

/// Tells the program of that name how many there are to be.
fn tell(stage: &Stage, name: &str, number: u64) {
    let path = stage.end_file().with_extension("told");
    std::fs::write(&path, number.to_string()).unwrap();
    std::fs::rename(&path, path.with_extension(name)).unwrap();
}

fn is_used(one: &SessionInfoT) -> bool {
    one.kind == KindT::Udp && one.datagrams_received >= STAY
}

/// Frames that a host has put on the link.
fn put_on(link: &Link, end: End) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let text = link.host(end).enter(read).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(link.interface())).unwrap();
    line.trim_start_matches(':').split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// What the link has delivered undamaged of what that end has sent so far, once nothing is on its
/// way.
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

/// A link on which nobody speaks but the programs: who is where is known, and there is no IPv6
/// unless it is asked for.
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

/// Lost, twice and late; then damaged: none of those is to come, however often.
const BAD: [Conditions; 2] = [
    Conditions { loss: 0.1, duplicate: 0.05, reorder: 0.1, ..BASE },
    Conditions { corrupt: 0.1, jitter: Duration::from_millis(1), ..BASE },
];
/// None is lost. Damage would not always show: nothing sums up all of IPv6's header.
const LATE: [Conditions; 1] =
    [Conditions { reorder: 0.1, jitter: Duration::from_millis(1), ..BASE }];

fn play(under: Under, is_v6: bool, has_ports: bool) {
    let Some((a, b)) = hosts() else { return };
    let link = quiet_link(&a, &b, is_v6);
    let before = [End::A, End::B].map(|end| delivered(&link, end));
    let mut exchange = Exchange::start(&link, under, is_v6, has_ports);
    for conditions in if is_v6 { &LATE[..] } else { &BAD } {
        exchange.endure(*conditions);
    }
    exchange.finish(before);
}

#[test]
fn what_is_delivered_comes_and_nothing_else() {
    for under in [Under::Nobody, Under::Server, Under::Client, Under::Both] {
        play(under, false, false);
    }
}

#[test]
fn over_ipv6() {
    play(Under::Both, true, false);
}

#[test]
fn through_ports() {
    play(Under::Both, false, true);
    play(Under::Both, true, true);
}
