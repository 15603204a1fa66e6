//! Runs the benchmark program as a person would, only for a shorter time, and checks that its JSON
//! has all figures. The values are not checked, because they mean nothing on a busy machine.

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

/// Checks that a cell has a figure. A container may forbid message queues or reading another
/// process's memory; no other cell may lack its figure.
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

/// One program of each kind that needs no package. The test runs the release build, as the tests of
/// the whole system do.
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

/// Two hosts, if the machine allows network namespaces. The test does not check that a session
/// moved: on a busy machine a short turn may end before the move.
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

#[test]
fn copies() {
    let outcome = run_with("copies", &["--size", "16", "--size", "65536"]);
    assert!(!list(&outcome, "cells").is_empty());
}

#[test]
fn udp() {
    let outcome = run("udp");
    for cell in list(&outcome, "cells") {
        assert!(cell["ns"].as_f64().unwrap() > 0.0, "{cell}");
    }
}

#[test]
fn doors() {
    let outcome = run("doors");
    assert!(outcome["function"].as_f64().unwrap() > 0.0, "{outcome}");
    assert_eq!(list(&outcome, "starts").len(), 3);
}

/// The page and its JSON with three tables: of calls that a server answers, of datagrams, and of
/// layers, whose figures of today take root. Every line of the first has a figure, so the library
/// that takes over the C library's calls works, and the loader takes it.
#[test]
fn papers() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (page, json) = (folder.join("papers.html"), folder.join("papers.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sojourn-bench"));
    command.args(["papers", "--quick", "--table", "getpid", "--table", "decomposition4"]);
    command.args(["--table", "udp1992"]);
    let output = command.arg("--html").arg(&page).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("id=\"getpid\"") && text.contains("id=\"decomposition4\""));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let sections = list(&report, "sections");
    assert_eq!(sections.len(), 3);
    let lines = list(&sections[0], "lines");
    for line in lines {
        let figure = &line["today"]["sleeping"][0];
        assert!(figure.as_f64().unwrap() > 0.0, "{line}");
    }
    let figures = |line: &Value| -> Vec<f64> {
        let today = line["today"]["sleeping"].as_array().into_iter().flatten();
        today.filter_map(Value::as_f64).collect()
    };
    let lines = list(&sections[2], "lines");
    assert!(lines.iter().flat_map(figures).all(|ns| (0.0..1e9).contains(&ns)), "{lines:?}");
    // Without the rights, or without a release build, the notes say so in the figures' place.
    let total = lines.iter().find(|line| line["name"] == "send: total").unwrap();
    assert!(!figures(total).is_empty() || !list(&sections[2], "notes").is_empty(), "{total}");
}
