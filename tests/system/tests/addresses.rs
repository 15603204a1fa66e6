//! Tests of TCP sessions within a host by any of its addresses: others of 127.0.0.0/8, those of its
//! interfaces, and IPv4 addresses by IPv6 sockets. The sessions move, and every byte arrives while
//! they are recalled again and again.
//!
//! The peers check every byte. Not here: 127.0.0.1 and ::1 in every way to wait (`churn`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Sandbox;
use sojourn_lab::net::{End, Link};
use sojourn_system::network::hosts;
use sojourn_system::{Admin, LIMIT, free_port, tcp_peers};
use std::time::{Duration, Instant};

/// The address of the listener, and the address to which the peer connects.
const LOOPBACK: [[&str; 2]; 7] = [
    ["127.0.0.2", "127.0.0.2"],
    ["0.0.0.0", "127.1.2.3"],
    // An IPv6 socket whose peer is an IPv4 socket.
    ["127.0.0.1", "[::ffff:127.0.0.1]"],
    ["0.0.0.0", "[::ffff:127.0.0.2]"],
    // A listener for both families.
    ["[::]", "127.0.0.1"],
    ["[::]", "[::ffff:127.0.0.1]"],
    ["[::ffff:127.0.0.1]", "127.0.0.1"],
];
/// Number of streams before the transfer may end, and the longest time for them.
const MOVES: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(20);

fn transfer(mut sandbox: Sandbox, [at, by]: [&str; 2], port: u16) {
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let mut admin = Admin::new(&sandbox).unwrap();
    let end = sandbox.folder().join("end").to_string_lossy().into_owned();
    let options = ["--way", "poll", "--until", &end];
    let mut running = tcp_peers(&sandbox, at, by, port, &options).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut moves = 0;
    while moves < MOVES && Instant::now() < deadline {
        assert!(running.iter_mut().all(|peer| peer.is_running()), "{at} by {by}: ended early");
        admin.recall_all().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        moves = admin.moves().unwrap().joins;
    }
    std::fs::write(&end, "").unwrap();
    for peer in running {
        peer.finish(LIMIT).unwrap().success(&format!("{at} by {by}")).unwrap();
    }
    println!("{at} by {by}: {moves} moves");
    assert!(moves >= MOVES, "{at} by {by}: only {moves} moves");
}

#[test]
fn other_addresses_of_the_loopback_interface_and_mapped_ones() {
    for [at, by] in LOOPBACK {
        transfer(Sandbox::new().unwrap(), [at, by], free_port(at).unwrap());
    }
}

#[test]
fn addresses_of_the_hosts_own_interfaces() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let v4 = link.v4(End::A).to_string();
    let [v6, mapped] = [format!("[{}]", link.v6(End::A)), format!("[::ffff:{v4}]")];
    for (number, [at, by]) in [[&v4, &v4], [&v6, &v6], [&v4, &mapped]].into_iter().enumerate() {
        // A fixed port is free, because no other program runs on this host.
        transfer(Sandbox::on(&a).unwrap(), [at, by], 5000 + number as u16);
    }
}
