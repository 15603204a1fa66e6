//! Tests that sessions which go home and move out again all the time, under load, lose, repeat and
//! reorder nothing.
//!
//! The peers check every byte. A test also fails if too few moves happened, because then it has
//! shown nothing.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Sandbox;
use sojourn_system::{Admin, LIMIT, peers};
use std::time::{Duration, Instant};

/// Kinds of sessions, as `peers` names them; below, the ways of waiting.
const KINDS: [&str; 5] = ["127.0.0.1", "[::1]", "unix", "socketpair", "pipe"];
const WAYS: [&str; 5] = ["blocking", "poll", "select", "epoll", "epollet"];

/// Number of streams before the transfer may end, and the longest time for them.
const MOVES: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(60);

fn churn(kind: &str, way: &str, options: &[&str]) -> u64 {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let mut admin = Admin::new(&sandbox).unwrap();
    let end = sandbox.folder().join("end").to_string_lossy().into_owned();
    let mut words = vec!["--way", way];
    words.extend(options);
    words.extend(["--until", &end]);
    let mut running = peers(&sandbox, kind, &words).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut moves = 0;
    while moves < MOVES && Instant::now() < deadline {
        assert!(running.iter_mut().all(|peer| peer.is_running()), "{kind} {way}: ended early");
        admin.recall_all().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        moves = admin.moves().unwrap().joins;
    }
    // The reasons for staying in the kernel, for the message if the session no longer moves.
    let why: Vec<_> = admin.refused().unwrap().iter().map(|refused| refused.reason).collect();
    std::fs::write(&end, "").unwrap();
    for peer in running {
        peer.finish(LIMIT).unwrap().success(&format!("{kind} {way}")).unwrap();
    }
    println!("{kind} {way}: {moves} moves");
    assert!(moves >= MOVES, "{kind} {way}: only {moves} moves: {why:?}");
    moves
}

/// Returns true if this case is to be run: `CHURN_ONLY="KIND WAY"` chooses a single one.
fn is_chosen(kind: &str, way: &str) -> bool {
    std::env::var("CHURN_ONLY").map_or(true, |only| only == format!("{kind} {way}"))
}

#[test]
fn streams_in_both_directions() {
    for kind in KINDS {
        for way in WAYS.iter().filter(|way| is_chosen(kind, way)) {
            churn(kind, way, &[]);
        }
    }
}

#[test]
fn questions_and_answers() {
    for kind in KINDS {
        for way in ["blocking", "poll", "epoll"].iter().filter(|way| is_chosen(kind, way)) {
            churn(kind, way, &["--rounds", "1", "--size", "3000"]);
        }
    }
}
