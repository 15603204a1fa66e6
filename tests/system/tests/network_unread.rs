//! Tests that a move does not wait for a program to read what it has: what a program writes
//! meanwhile goes on, as its peer may be waiting for it.
//!
//! Not here: what a move costs (`sojourn-bench net`). Needs rights over networks; skipped with a
//! message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{End, Link};
use sojourn_system::network::{Accelerated, Stage, hosts, programs};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// Longest wait for the session to be away.
const PATIENCE: Duration = Duration::from_secs(20);

fn role(stage: &Stage, end: End, role: &str) -> Running {
    let mut command = stage.command(end, "python3");
    command.arg(programs().join("unread.py")).args([role, &stage.address]);
    command.arg(stage.port.to_string());
    Running::start(command).unwrap()
}

#[test]
fn what_a_program_writes_goes_on_though_it_reads_nothing() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::new(&link, Accelerated::Client).unwrap();
    let server = role(&stage, End::A, "greet");
    stage.await_listener(&link, stage.port).unwrap();
    let caller = role(&stage, End::B, "call");
    let mut admin = Admin::new(&stage.worlds[1]).unwrap();
    // A session that is not quite out of the kernel has no connection yet.
    let deadline = Instant::now() + PATIENCE;
    while admin.connections().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "what is written leaves by nobody");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(stage.end_file(), "").unwrap();
    well([caller, server]);
}

/// A thread that sits in the kernel cannot be told of the ring, and what it waits for may be the
/// answer to what another thread writes.
#[test]
fn what_a_program_writes_goes_on_though_a_thread_of_it_waits_in_the_kernel() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for home in ["library", "server"] {
        let mut stage = Stage::new(&link, Accelerated::Client).unwrap();
        stage.worlds[1].set("HOME", home);
        let server = role(&stage, End::A, "take");
        stage.await_listener(&link, stage.port).unwrap();
        let caller = role(&stage, End::B, "wait");
        well([caller, server]);
        let mut admin = Admin::new(&stage.worlds[1]).unwrap();
        assert!(admin.offers().unwrap() > 0, "{home}: nothing was to move");
    }
}

fn well(programs: [Running; 2]) {
    for program in programs {
        let output = program.finish(LIMIT).unwrap().success("a role").unwrap();
        assert_eq!(output, "all is well\n");
    }
}
