//! Tests that a process learns from the lives of its sessions: connections that end soon after they
//! have moved stop moving, and those that stay go on to.
//!
//! All is with the default thresholds. Not here: what is learnt (`process::lifetimes` of the
//! library has its own tests), and what moves cost (`bench local`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use serde_json::Value;
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::LIMIT;
use std::path::Path;

/// Runs a server and its client with so many connections of so many calls each; returns the
/// server's counters. Without measurements: a trial in the kernel after a quarter of a second,
/// which the calls take on a slow machine, would be one more move.
fn counters(connections: u32, calls: u32) -> Value {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MEASURE_BULK", "off");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/short.py");
    let mut command = sandbox.command(Mode::Sojourn, "python3");
    command.arg(script).args([connections.to_string(), calls.to_string()]);
    Running::start(command).unwrap().finish(LIMIT).unwrap().success("short.py").unwrap();
    sandbox.stats().unwrap()
}

/// Some have to be offered before it is known that they end soon. On a busy machine one that stands
/// still for a quarter of a second looks as if it stayed, and then a few more are offered; one on
/// which all calls are slow has none that is hot, and proves nothing.
#[test]
fn connections_that_end_soon_are_no_longer_offered() {
    let mut runs = (0..10).map(|_| counters(300, 200)["offers"].as_u64().unwrap());
    let offers = runs.find(|offers| *offers > 0).expect("in none of ten runs one was hot");
    assert!(offers <= 100, "{offers} ends of 600 were offered");
}

#[test]
fn one_that_stays_moves() {
    assert_eq!(counters(1, 20_000)["joins"], 1);
}
