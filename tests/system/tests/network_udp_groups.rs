//! Tests of UDP sockets that receive multicast and broadcast besides their own datagrams, some of
//! them in fragments, while they move out and home: every datagram arrives once, with the address
//! to which it was sent.
//!
//! Only whole datagrams to the host's own address go past the kernel, so both queues of a socket
//! are in use all the time. Not here: links that lose (`network_udp_weather.rs`). Needs root and
//! network namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{End, Link};
use sojourn_session::{KindT, SessionInfoT};
use sojourn_system::network::{Accelerated, Stage, await_bound, hosts, received_datagrams};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of recalls of the socket.
const RECALLS: u64 = 15;
/// Number of datagrams past the kernel before a socket is recalled.
const STAY: u64 = 100;
/// Number of datagrams that the caller sends to a socket that stays in the kernel.
const MANY: u64 = 5000;

#[track_caller]
fn wait_for(what: &str, calls: &mut Running, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(calls.is_running() && Instant::now() < deadline, "{what}: {calls:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Recalls the socket again and again.
fn move_about(admin: &mut Admin, calls: &mut Running) {
    let mut known = Vec::new();
    for _ in 0..RECALLS {
        wait_for("a socket that is used away", calls, || {
            let is_it = |one: &SessionInfoT| {
                one.kind == KindT::Udp
                    && one.datagrams_received >= STAY
                    && !known.contains(&one.stream)
            };
            let Some(one) = admin.away().unwrap().into_iter().find(is_it) else { return false };
            known.push(one.stream);
            admin.recall_of(&[one.pid]).unwrap();
            true
        });
    }
}

fn play(accelerated: Accelerated, has_ports: bool) {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::either(&link, accelerated, has_ports).unwrap();
    let start = |end, role: &str| {
        let mut command = stage.command(end, "python3");
        command.arg(stage.programs().join("net/udp_groups.py"));
        command.args([role, &*stage.address, &stage.port.to_string()]);
        Running::start(command).unwrap()
    };
    let serves = start(End::A, "serve");
    await_bound(&a, stage.port).unwrap();
    let mut calls = start(End::B, "call");
    match stage.admins().unwrap().first_mut() {
        Some(admin) => move_about(admin, &mut calls),
        None => wait_for("many", &mut calls, || received_datagrams(&a).unwrap() > MANY),
    }
    std::fs::write(stage.end_file(), "").unwrap();
    let [called, served] = [calls, serves].map(|one| one.finish(LIMIT).unwrap());
    println!("{accelerated:?}, ports: {has_ports}: {}", served.out.trim());
    assert_eq!((called.status, served.status), (0, 0), "{accelerated:?}: {called:#?} {served:#?}");
    let output: serde_json::Value = serde_json::from_str(served.out.trim()).unwrap();
    let none = serde_json::json!([]);
    assert!(output["missing"] == none && output["twice"] == none, "{accelerated:?}: {output}");
    assert!(output["sent"].as_u64().unwrap() > 1000, "{accelerated:?}: {output}");
    stage.end().unwrap();
}

#[test]
fn everything_comes_once() {
    for accelerated in [Accelerated::Neither, Accelerated::Server] {
        play(accelerated, false);
    }
}

#[test]
fn everything_comes_once_through_a_port() {
    play(Accelerated::Server, true);
}
