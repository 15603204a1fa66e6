//! Tests that a UDP socket loses no datagram when another program gets it in the middle: by exec
//! while it moves, or by fork and the end of the program that had it.
//!
//! The datagrams are numbered, and each is sent once. Not here: moves of a program that stays
//! (`network_udp_moves`). Needs root and network namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::{Pid, Signal};
use sojourn_lab::Running;
use sojourn_lab::net::{End, Link};
use sojourn_system::network::{
    Accelerated, Stage, await_bound, datagrams_without_room, hosts, received_datagrams,
};
use sojourn_system::{Admin, LIMIT};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two datagrams. More come while the server's front stands still than the pump once
/// kept for a socket that it does not know yet (256), and fewer than a port's ring holds (512).
const PACE: Duration = Duration::from_micros(250);
/// Time in which both sides of a move hear of it.
const HEARD: Duration = Duration::from_millis(2);
/// How long the server's front stands still: less than a library waits for the server.
const FRONT: Duration = Duration::from_millis(100);
/// The bit of the last datagram's number.
const LAST: u64 = 1 << 63;

/// Sends numbered datagrams until `is_over`, and then the last.
fn send(udp: &UdpSocket, is_over: &AtomicBool) {
    let mut number = 0u64;
    while !is_over.load(Ordering::Relaxed) {
        udp.send(&number.to_be_bytes()).unwrap();
        number += 1;
        std::thread::sleep(PACE);
    }
    udp.send(&(number | LAST).to_be_bytes()).unwrap();
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
    }
}

/// Starts a program under Sojourn at B, and a plain sender at A. Signals the program after `when`,
/// and returns the numbers that nobody has received.
fn missing(link: &Link, stage: &Stage, how: &str, when: impl FnOnce(&Stage)) -> String {
    let (own, port) = (link.v4(End::B).to_string(), stage.port.to_string());
    let mut command = stage.command(End::B, "python3");
    command.arg(stage.programs().join("net/udp_passed_on.py"));
    command.args([how, &own, &port, &stage.address]);
    let program = Running::start(command).unwrap();
    await_bound(link.host(End::B), stage.port).unwrap();
    let place = (stage.address.clone(), stage.port);
    let bind = || UdpSocket::bind(place).unwrap();
    let udp = link.host(End::A).enter(bind).unwrap();
    udp.connect((own.as_str(), stage.port)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send(&udp, &is_over));
        when(stage);
        program.signal(Signal::USR1);
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
    });
    let output = program.finish(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    let lost = datagrams_without_room(link.host(End::B)).unwrap();
    assert_eq!(
        lost, 0,
        "the kernel's own receive buffer was too small: nothing is said of Sojourn"
    );
    output.out.trim().to_owned()
}

/// Stops the server's front, which passes on what the carrier tells the library, or continues it.
fn signal_front(stage: &Stage, signal: Signal) {
    let front = stage.worlds[1].server_part("front").unwrap().cast_signed();
    let front = Pid::from_raw(front).unwrap();
    rustix::process::kill_process(front, signal).unwrap();
}

/// The program becomes another one when its datagrams do not come to the kernel any more, and its
/// library has not been told so.
#[test]
fn a_program_that_becomes_another_one_while_its_socket_moves() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut stage = Stage::with_ports(&link, Accelerated::Client).unwrap();
    let mut was_hidden = 0;
    for round in 0..4 {
        stage.port = sojourn_system::network::next_port();
        let mut admin = Admin::new(&stage.worlds[1]).unwrap();
        let moves = admin.moves().unwrap().joins;
        let is_hidden = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            missing(&link, &stage, "exec", |stage| {
                wait_for("a move", || admin.moves().unwrap().joins > moves);
                std::thread::sleep(HEARD);
                signal_front(stage, Signal::STOP);
                let heard = || received_datagrams(&b).unwrap();
                let (mut last, mut since) = (heard(), Instant::now());
                let limit = since + 4 * FRONT;
                while since.elapsed() < 20 * PACE && Instant::now() < limit {
                    if heard() != last {
                        (last, since) = (heard(), Instant::now());
                    }
                }
                is_hidden.store(since.elapsed() >= 20 * PACE, Ordering::Relaxed);
                let stage: &Stage = stage;
                let front = stage.worlds[1].server_part("front");
                scope.spawn(move || {
                    std::thread::sleep(FRONT);
                    let front = front.and_then(|pid| Pid::from_raw(pid.cast_signed()));
                    rustix::process::kill_process(front.unwrap(), Signal::CONT).unwrap();
                });
            })
        });
        was_hidden += usize::from(is_hidden.load(Ordering::Relaxed));
        assert_eq!(found, "[]", "round {round}");
    }
    assert!(was_hidden > 0, "no datagrams were turned away before the library heard of it");
    stage.end().unwrap();
}

#[test]
fn a_child_whose_parent_ends_with_datagrams_unread() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::new(&link, Accelerated::Client).unwrap();
    let found = missing(&link, &stage, "fork", |stage| {
        let mut admin = Admin::new(&stage.worlds[1]).unwrap();
        wait_for("a socket that is away", || {
            admin.away().unwrap().iter().any(|session| session.received > 0)
        });
    });
    assert_eq!(found, "[]");
    stage.end().unwrap();
}
