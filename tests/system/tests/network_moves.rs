//! What moves of sessions with another host cost those who talk meanwhile: gauges, with limits so
//! wide that a busy machine keeps them.
//!
//! How long a stream stands still is measured by `sojourn-bench net --row stall`, and asserted
//! nowhere. Not here: whether every byte arrives (`network`, `network_events`, `network_server`).
//! Needs rights over networks, and says so if they cannot be had.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{End, Link};
use sojourn_system::LIMIT;
use sojourn_system::network::{Stage, Under, hosts};
use std::time::{Duration, Instant};

/// How long questions are asked.
const LENGTH: Duration = Duration::from_secs(4);
/// Between two commands to send everything home.
const EVERY: Duration = Duration::from_millis(20);
/// Moves that are to be seen at least: with fewer it has shown nothing.
const MOVES: u64 = 4;
/// An answer that takes longer was lost on the way, question or answer, and came by a time-out.
const TIME_OUT_NS: u64 = 180_000_000;
/// Descriptors that a process may have more than after its first moves: what lingers for a moment
/// of each.
const DESCRIPTORS: usize = 40;

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// What came of questions and answers while their session went to and fro.
struct Found {
    moves: u64,
    answers: u64,
    /// Of them those that took a time-out.
    late: u64,
    longest_ms: u64,
    /// The most descriptors of the program and its server during the first moves, and later.
    descriptors: [[usize; 2]; 2],
}

fn ask(link: &Link, under: Under) -> Found {
    let stage = Stage::new(link, under).unwrap();
    let address = format!("{}:{}", stage.address, stage.port);
    let bench = stage.worlds[0].built().path("lab-bench").to_string_lossy().into_owned();
    let start = |end: End, words: &[&str]| {
        let mut command = stage.command(end, &bench);
        command.args(words);
        Running::start(command).unwrap()
    };
    let server = start(End::A, &["serve", "tcp", &address]);
    stage.await_listener(link, stage.port).unwrap();
    let time = LENGTH.as_millis().to_string();
    let words = ["ping", "tcp", &address, "--size", "100", "--time-ms", &time, "--warm-ms", "100"];
    let mut client = start(End::B, &words);
    let mut admins = stage.admins().unwrap();
    let end = stage.ends_under()[0];
    let program = if end == End::A { server.pid() } else { client.pid() };
    let watched = [program, stage.worlds[end as usize].server_pid().unwrap()];
    let mut found = [[0; 2]; 2];
    let deadline = Instant::now() + LIMIT;
    while client.is_running() && Instant::now() < deadline {
        for admin in &mut admins {
            admin.recall_all().unwrap();
        }
        let now = watched.map(descriptors);
        let which = usize::from(stage.moves().unwrap() >= MOVES);
        found[which] = [0, 1].map(|at| found[which][at].max(now[at]));
        std::thread::sleep(EVERY);
    }
    let moves = stage.moves().unwrap();
    let said = client.finish(LIMIT).unwrap().success("lab-bench ping").unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let times = said["histogram"].as_array().unwrap().iter().map(|pair| {
        let number = |at: usize| pair[at].as_u64().unwrap();
        (number(0), number(1))
    });
    let times: Vec<(u64, u64)> = times.collect();
    let late = times.iter().filter(|(ns, _)| *ns >= TIME_OUT_NS).map(|(_, count)| count).sum();
    let answers = times.iter().map(|(_, count)| count).sum();
    let longest_ms = times.iter().map(|(ns, _)| ns / 1_000_000).max().unwrap();
    Found { moves, answers, late, longest_ms, descriptors: found }
}

#[test]
fn those_who_ask_wait_little() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for under in [Under::Server, Under::Client, Under::Both] {
        let found = ask(&link, under);
        let Found { moves, answers, late, longest_ms, .. } = found;
        println!(
            "{under:?}: {moves} moves, {answers} answers, {late} late, at most {longest_ms} ms"
        );
        assert!(found.moves >= MOVES, "{under:?}: only {} moves", found.moves);
        // Of a session whose frames are lost on the way nearly each second move takes one.
        assert!(2 * found.late <= found.moves, "{under:?}: {} answers came late", found.late);
        let [first, later] = found.descriptors;
        let has_grown = (0..2).any(|at| later[at] > first[at] + DESCRIPTORS);
        assert!(!has_grown, "{under:?}: {later:?} descriptors, {first:?} during the first moves");
    }
}
