//! Runs the benchmark program as a person would, only shorter, and looks at the figures it wrote.
//! Whether they are good is not the question here: a busy machine says nothing about that.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn run(what: &str) -> Value {
    run_with(what, &[])
}

fn run_with(what: &str, more: &[&str]) -> Value {
    let json = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{what}.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sojourn-bench"));
    let output = command.args([what, "--quick", "--json"]).arg(&json).args(more).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("reached"), "{text}");
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

fn list<'a>(outcome: &'a Value, name: &str) -> &'a Vec<Value> {
    outcome[name].as_array().unwrap()
}

/// A container may forbid message queues or reading another process's memory; nothing else may
/// fail.
fn assert_measured(cell: &Value, figure: &str) {
    let forbidden = cell["error"].as_str().is_some_and(|error| error.contains("os error"));
    assert!(forbidden || cell[figure].as_f64().unwrap() > 0.0, "{cell}");
}

#[test]
fn ipc() {
    let outcome = run("ipc");
    assert!(list(&outcome, "round_trips").len() > 20);
    for cell in list(&outcome, "round_trips").iter().chain(list(&outcome, "bandwidth")) {
        assert_measured(cell, "ns");
    }
    for cell in list(&outcome, "many_clients") {
        assert_measured(cell, "calls_per_s");
    }
    assert!(!list(&outcome, "reach").is_empty());
}

#[test]
fn idl() {
    let outcome = run("idl");
    assert!(list(&outcome, "marshalling").len() > 12);
    for cell in list(&outcome, "marshalling") {
        assert_measured(cell, "ns");
    }
    for cell in list(&outcome, "calls") {
        assert_measured(cell, "ns");
    }
    assert!(!list(&outcome, "reach").is_empty());
}

/// One program of each kind that needs no package. It runs the release build, as whole-system tests
/// do.
#[test]
fn local() {
    let outcome =
        run_with("local", &["--row", "unix", "--row", "sessions-10", "--row", "children"]);
    for cell in list(&outcome, "cells") {
        assert!(cell["error"].is_null(), "{cell}");
        assert!(cell["value"].as_f64().unwrap() > 0.0, "{cell}");
    }
    let plain = list(&outcome, "cells").iter().filter(|cell| cell["way"] == "plain");
    assert!(plain.count() >= 6);
    assert!(!list(&outcome, "reach").is_empty());
}

/// Two hosts, where they can be had. That a session was really away is the matter of the tests of
/// sessions with other hosts: on a busy machine a short turn may end before.
#[test]
fn net() {
    let outcome = run_with("net", &["--row", "tcp-rtt-1460", "--row", "bulk", "--way", "both"]);
    for cell in list(&outcome, "cells") {
        assert!(cell["error"].is_null(), "{cell}");
        assert!(cell["value"].as_f64().unwrap() > 0.0, "{cell}");
    }
    let is_possible = !list(&outcome, "cells").is_empty();
    assert!(!is_possible || list(&outcome, "reach").len() >= 4);
}
