//! Sessions that go home and move out again all the time, under load, lose, repeat and reorder nothing.
//!
//! The peers check every byte. The test fails also if too few moves happened: then it has shown nothing.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Sandbox;
use sojourn_system::{Admin, LIMIT, peers};
use std::time::Duration;

/// Kinds of sessions: names for `peers`.
const KINDS: [&str; 5] = ["127.0.0.1", "[::1]", "unix", "socketpair", "pipe"];
const WAYS: [&str; 5] = ["blocking", "poll", "select", "epoll", "epollet"];

fn churn(kind: &str, way: &str, options: &[&str], moves_min: u64) {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let mut admin = Admin::new(&sandbox).unwrap();
    let mut words = vec!["--way", way];
    words.extend(options);
    let mut running = peers(&sandbox, kind, &words).unwrap();
    while running.iter_mut().any(|peer| peer.is_running()) {
        admin.recall_all().unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    for peer in running {
        peer.finish(LIMIT).unwrap().success(kind).unwrap();
    }
    let (joins, _) = admin.moves().unwrap();
    println!("{kind} {way}: {joins} moves");
    assert!(joins >= moves_min, "{kind} {way}: only {joins} moves");
}

#[test]
fn streams_in_both_directions() {
    for kind in KINDS {
        for way in WAYS {
            churn(kind, way, &["--bytes", "20000000"], 10);
        }
    }
}

#[test]
fn questions_and_answers() {
    for kind in KINDS {
        for way in ["blocking", "poll", "epoll"] {
            churn(kind, way, &["--rounds", "20000", "--size", "3000"], 20);
        }
    }
}
