//! Sessions whose short frames are sent by AF_XDP sockets (`sojournd --xdp`), on the interface and
//! through ports: recalled again and again, over the end of a server, and with programs killed.
//!
//! The peer on the other host is a plain kernel, and both ends check every byte. With `LAB_XDP=1`
//! in the environment all other tests of sessions with other hosts send by AF_XDP, too. Not here:
//! which frames leave which way (`crates/netif/tests/sockets.rs`). Needs root and network
//! namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::Signal;
use sojourn_lab::net::{End, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::{hosts, next_port};
use sojourn_system::{Admin, LIMIT, rights};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time for the moves.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of moves of a session that is recalled.
const MOVES: u64 = 10;

/// Returns true if a process has a ring of a socket mapped at that offset.
fn has_ring(pid: u32, offset: &str) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().any(|line| line.contains(offset) && line.contains("socket:["))
}

/// Returns true if a process has an AF_XDP socket (`XDP_UMEM_PGOFF_COMPLETION_RING`).
fn has_xdp(pid: u32) -> bool {
    has_ring(pid, " 180000000 ")
}

/// Returns true if a process has a packet socket: it runs a session's engine.
fn has_packets(pid: u32) -> bool {
    has_ring(pid, " 00000000 ")
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn world(link: &Link, by_port: bool) -> Sandbox {
    let mut world = Sandbox::with_xdp(link.host(End::A), by_port).unwrap();
    world.set("MOVE_AFTER_CALLS", "4");
    rights::open(&world).unwrap();
    world
}

/// Starts both ends of a session, under Sojourn and plain on the other host. A program that has
/// `by_port` has no rights.
fn start(link: &Link, world: &Sandbox, by_port: bool, options: &[&str]) -> [Running; 2] {
    let address = format!("{}:{}", link.v4(End::A), next_port());
    let start = |mut command: Command, role: &str| {
        command.args([role, "tcp", &address]).args(options);
        command.arg("--until").arg(world.folder().join("end"));
        Running::start(command).unwrap()
    };
    let peer = world.built().path("lab-peer");
    let under = match by_port {
        true => rights::none(world, "lab-peer"),
        false => world.command(Mode::Sojourn, &peer),
    };
    let mut plain = Command::new(&peer);
    link.host(End::B).place(&mut plain);
    [start(under, "serve"), start(plain, "call")]
}

fn end(world: &Sandbox, running: Vec<Running>) {
    std::fs::write(world.folder().join("end"), "").unwrap();
    let ended: Vec<_> = running.into_iter().map(|peer| peer.finish(LIMIT).unwrap()).collect();
    assert!(ended.iter().all(|peer| peer.status == 0), "{ended:#?}");
}

/// A session under load, short messages and long ones, that goes home and away again.
fn recalled(link: &Link, by_port: bool, options: &[&str]) {
    let world = world(link, by_port);
    let mut running = start(link, &world, by_port, options);
    let mut admin = Admin::new(&world).unwrap();
    let pid = running[0].pid();
    wait_for("an AF_XDP socket", || has_xdp(pid));
    wait_for("moves", || {
        assert!(running.iter_mut().all(Running::is_running), "by port: {by_port}, {options:?}");
        admin.recall_all().unwrap();
        admin.moves().unwrap().joins >= MOVES
    });
    assert!(has_xdp(pid), "still the same interface");
    end(&world, running.into());
}

#[test]
fn short_and_long_messages_both_ways() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for by_port in [false, true] {
        recalled(&link, by_port, &["--way", "blocking", "--size", "300000"]);
        recalled(&link, by_port, &["--way", "epoll", "--rounds", "1", "--size", "600"]);
    }
}

/// The next server knows nothing of a program's AF_XDP socket, and need not.
#[test]
fn a_session_outlives_its_server() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for by_port in [false, true] {
        let mut world = world(&link, by_port);
        let mut running = start(&link, &world, by_port, &["--way", "blocking"]);
        let pid = running[0].pid();
        wait_for("an AF_XDP socket", || has_xdp(pid));
        world.kill_server();
        world.start_server().unwrap();
        let mut admin = Admin::new(&world).unwrap();
        wait_for("the session at the next server, and a move", || {
            assert!(running.iter_mut().all(Running::is_running), "by port: {by_port}");
            admin.recall_all().unwrap();
            admin.moves().unwrap().joins >= 2
        });
        end(&world, running.into());
    }
}

/// Returns true if a process has an AF_XDP socket within the time that a session needs to begin.
fn has_xdp_soon(pid: u32) -> bool {
    let deadline = Instant::now() + Duration::from_millis(300);
    while !has_xdp(pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    has_xdp(pid)
}

/// A queue of an interface has one AF_XDP socket. Of two programs on the interface itself one has
/// it, and the other does without; when the first is killed, a later one has it.
#[test]
fn a_program_that_is_killed_leaves_its_queue_to_another() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let world = world(&link, false);
    let begin = || {
        // Questions and answers: such a session finds a quiet moment soon.
        let pair = start(&link, &world, false, &["--way", "epoll", "--rounds", "1"]);
        wait_for("a session that is away", || has_packets(pair[0].pid()));
        pair
    };
    let [first, _its_peer] = begin();
    wait_for("the first program's AF_XDP socket", || has_xdp(first.pid()));
    let mut others = Vec::from(begin());
    assert!(!has_xdp_soon(others[0].pid()), "the first has it");
    first.signal(Signal::KILL);
    drop(first.finish(LIMIT));
    // The kernel frees the queue some time after the socket is closed (an RCU grace period, then
    // `xp_release_deferred`). A program that comes earlier does without.
    wait_for("a later program's AF_XDP socket", || {
        let pair = begin();
        let has_it = has_xdp_soon(pair[0].pid());
        others.extend(pair);
        has_it
    });
    end(&world, others);
}
