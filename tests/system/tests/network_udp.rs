//! UDP sockets of programs that know nothing of Sojourn, with another host: what goes past the kernel, and what does not.
//!
//! The scripts compare every answer with its question. That datagrams went past the kernel the host's own counters tell: it has not seen
//! them. Needs root and network namespaces, and says so if they cannot be had.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{End, Host, Link};
use sojourn_session::{KindT, SessionInfoT};
use sojourn_system::network::{Stage, Under, hosts};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// How long it may take until a program says that it is ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// A session that is to be sent home was away for so long.
const LONG_AWAY_MS: u64 = 30;

/// Datagrams that the kernel of that host has received for its programs.
fn received(host: &Host) -> u64 {
    let text = host.enter(|| {
        ["snmp", "snmp6"]
            .map(|name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap())
    });
    let [v4, v6] = text.unwrap();
    let mut lines = v4.lines().filter(|line| line.starts_with("Udp:"));
    let names = lines.next().unwrap().split_whitespace();
    let mut found = names.zip(lines.next().unwrap().split_whitespace());
    let v4: u64 = found.find(|(name, _)| *name == "InDatagrams").unwrap().1.parse().unwrap();
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6InDatagrams")).unwrap();
    v4 + v6.trim().parse::<u64>().unwrap()
}

/// Runs the script's command at an end.
fn script(stage: &Stage, end: End, words: &[&str]) -> Running {
    let mut command = stage.command(end, "python3");
    let path = sojourn_system::network::programs().join("net/udp.py");
    command.arg(path).args(words).env("PYTHONUNBUFFERED", "1");
    Running::start(command).unwrap()
}

/// Waits until somebody has bound that port on the host.
fn await_port(host: &Host, port: u16) {
    let deadline = Instant::now() + PATIENCE;
    let suffix = format!(":{port:04X}");
    let is_there = || {
        ["udp", "udp6"].iter().any(|name| {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
            text.lines()
                .any(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&suffix)))
        })
    };
    while !host.enter(is_there).unwrap() {
        assert!(Instant::now() < deadline, "nobody has bound {port}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What one exchange does.
#[derive(Clone, Copy, Debug)]
struct Plan<'p> {
    under: Under,
    is_v6: bool,
    /// Where the server listens: on its address, or on all.
    is_bound: bool,
    way: &'p str,
    form: &'p str,
    sizes: &'p str,
    count: u64,
    /// How often the sessions are sent home meanwhile.
    recalls: usize,
}

const PLAIN: Plan<'_> = Plan {
    under: Under::Both,
    is_v6: false,
    is_bound: true,
    way: "blocking",
    form: "connected",
    sizes: "100,1,1200,4",
    count: 10_000,
    recalls: 0,
};

fn play(link: &Link, plan: Plan<'_>) {
    let mut stage = Stage::new(link, plan.under).unwrap();
    let (address, any) = match plan.is_v6 {
        true => (link.v6(End::A).to_string(), "::".to_string()),
        false => (link.v4(End::A).to_string(), "0.0.0.0".to_string()),
    };
    let (port, count) = (stage.port.to_string(), plan.count.to_string());
    let at = if plan.is_bound { &address } else { &any };
    stage.worlds.iter_mut().for_each(|world| world.set("SPIN", "never"));
    let server = script(&stage, End::A, &["serve", plan.way, at, &port]);
    await_port(link.host(End::A), stage.port);
    let before = [End::A, End::B].map(|end| received(link.host(end)));
    let words = ["call", plan.way, &address, &port, &count, plan.form, plan.sizes];
    let mut client = script(&stage, End::B, &words);
    let mut seen = 0;
    let mut recalled = 0;
    let mut admins = [0, 1].map(|at| Admin::new(&stage.worlds[at]).unwrap());
    let deadline = Instant::now() + LIMIT;
    while client.is_running() && Instant::now() < deadline {
        for admin in &mut admins {
            let away = admin.away().unwrap();
            seen += away.iter().filter(|session| session.kind == KindT::Udp).count();
            // Those that had time to get there.
            let is_long_away = |session: &&SessionInfoT| session.age_ms >= LONG_AWAY_MS;
            let pids: Vec<u32> =
                away.iter().filter(is_long_away).map(|session| session.pid).collect();
            if recalled < plan.recalls {
                recalled += admin.recall_of(&pids).unwrap().len();
            }
        }
        if plan.recalls > 0 && recalled >= plan.recalls {
            std::fs::write(stage.end_file(), "").unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = [client, server].map(|program| program.finish(LIMIT).unwrap());
    assert!(ended.iter().all(|program| program.status == 0), "{plan:?}: {ended:#?}");
    let after = [End::A, End::B].map(|end| received(link.host(end)));
    let by_kernel = [after[0] - before[0], after[1] - before[1]];
    println!("{plan:?}: {by_kernel:?} by the kernel, {recalled} recalled");
    assert!(plan.under == Under::Nobody || seen > 0, "{plan:?}: nothing was away");
    assert!(recalled >= plan.recalls, "{plan:?}: {recalled} recalled");
    let is_away = [
        matches!(plan.under, Under::Server | Under::Both),
        matches!(plan.under, Under::Client | Under::Both),
    ];
    for (is_away, by_kernel) in is_away.into_iter().zip(by_kernel) {
        assert!(
            !is_away || plan.recalls > 0 || by_kernel < plan.count / 2,
            "{plan:?}: {by_kernel}"
        );
    }
}

#[test]
fn in_every_way_to_wait() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for way in ["blocking", "recvmsg", "nonblocking", "select", "poll", "epoll", "epollet"] {
        play(&link, Plan { way, ..PLAIN });
    }
}

#[test]
fn by_either_family_and_bound_to_one_address_or_all() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for under in [Under::Server, Under::Client] {
        for (is_v6, is_bound) in [(false, true), (false, false), (true, true), (true, false)] {
            for form in ["connected", "unconnected"] {
                play(&link, Plan { under, is_v6, is_bound, form, way: "epoll", ..PLAIN });
            }
        }
    }
}

#[test]
fn while_sessions_are_sent_home_again_and_again() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for way in ["blocking", "poll", "epollet"] {
        play(&link, Plan { way, recalls: 20, count: 1_000_000, ..PLAIN });
    }
}

#[test]
fn larger_than_the_path_takes() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for form in ["connected", "unconnected"] {
        // One in five goes in fragments, which are the kernel's, both ways.
        play(
            &link,
            Plan { form, sizes: "8000,1472,1473,100,700,300,200,40,90,60", way: "poll", ..PLAIN },
        );
    }
}
