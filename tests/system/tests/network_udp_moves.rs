//! Tests that UDP sockets which ask and answer lose nothing while they move out and home again and
//! again.
//!
//! Each question has a number, and none is asked twice, so every datagram that a move loses or
//! doubles is seen. Programs that ask again: `network_udp`. Needs root and network namespaces;
//! skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{End, Link};
use sojourn_system::network::{Accelerated, Stage, hosts};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// Number of moves of each exchange, unless the variable `MOVES` gives another.
const MOVES: u64 = 150;
/// Longest time of an exchange.
const PATIENCE: Duration = Duration::from_secs(200);
/// Time between two recalls: long enough for a session to be delegated and to carry datagrams.
const STAY: Duration = Duration::from_millis(3);

/// Time (s) after which an answer counts as late. A call that misses its datagram waits for all of
/// it; a machine on which nobody runs for a while does not come near it.
const ANSWER: &str = "5";

fn script(stage: &Stage, end: End, name: &str, words: &[&str]) -> Running {
    let mut command = stage.command(end, "python3");
    let path = stage.programs().join("net").join(name);
    command.arg(path).args(words).env("PYTHONUNBUFFERED", "1").env("ANSWER", ANSWER);
    Running::start(command).unwrap()
}

/// Recalls all sessions again and again, until `wanted` moves were made or the program has ended.
/// Returns the number of moves.
fn move_about(stage: &Stage, asks: &mut Running, wanted: u64) -> u64 {
    let mut admins = stage.admins().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let count =
        |admins: &mut Vec<Admin>| admins.iter_mut().map(|a| a.moves().unwrap().returns).sum();
    loop {
        let moves: u64 = count(&mut admins);
        if moves >= wanted || !asks.is_running() || Instant::now() > deadline {
            return moves;
        }
        for admin in &mut admins {
            admin.recall_all().unwrap();
        }
        std::thread::sleep(STAY);
    }
}

/// The result of an exchange.
#[derive(Debug)]
struct ExchangeResult {
    asked: u64,
    lost: usize,
    late: u64,
    twice: u64,
    moves: u64,
}

fn play(
    link: &Link,
    accelerated: Accelerated,
    way: &str,
    form: &str,
    has_ports: bool,
) -> ExchangeResult {
    let wanted = std::env::var("MOVES").ok().and_then(|text| text.parse().ok()).unwrap_or(MOVES);
    let mut stage = Stage::either(link, accelerated, has_ports).unwrap();
    stage.worlds.iter_mut().for_each(|world| world.set("SPIN", "never"));
    let port = stage.port.to_string();
    let serves = script(&stage, End::A, "udp.py", &["serve", way, &stage.address, &port]);
    sojourn_system::network::await_bound(link.host(End::A), stage.port).unwrap();
    let words = [way, &stage.address, &port, form];
    let mut asks = script(&stage, End::B, "udp_count.py", &words);
    let moves = move_about(&stage, &mut asks, wanted);
    std::fs::write(stage.end_file(), "").unwrap();
    let [asks, serves] = [asks, serves].map(|program| program.finish(LIMIT).unwrap());
    assert_eq!((asks.status, serves.status), (0, 0), "{asks:?} {serves:?}");
    let said: serde_json::Value = serde_json::from_str(asks.out.trim()).unwrap();
    let number = |name: &str| said[name].as_u64().unwrap();
    let lost = said["lost"].as_array().unwrap().len();
    let what = format!("{accelerated:?} {way} {form} ports {has_ports}");
    println!("{what}: {moves} moves, {said}, {}", serves.out.trim());
    stage.end().unwrap();
    ExchangeResult {
        asked: number("asked"),
        lost,
        late: number("late"),
        twice: number("twice"),
        moves,
    }
}

/// Tests on a link that loses nothing that moves lose nothing either.
fn nothing_is_lost(accelerated: Accelerated, ways: &[&str], has_ports: bool) {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for way in ways {
        for form in ["connected", "unconnected"] {
            let came = play(&link, accelerated, way, form, has_ports);
            assert!(came.moves > 50 && came.asked > 500, "{came:?}");
            assert_eq!(
                (came.lost, came.late, came.twice),
                (0, 0, 0),
                "{accelerated:?} {way}: {came:?}"
            );
        }
    }
}

#[test]
fn of_those_who_ask() {
    nothing_is_lost(Accelerated::Client, &["blocking", "poll", "epollet"], false);
}

#[test]
fn of_those_who_answer() {
    nothing_is_lost(Accelerated::Server, &["blocking", "epoll"], false);
}

#[test]
fn through_ports() {
    nothing_is_lost(Accelerated::Client, &["poll"], true);
    nothing_is_lost(Accelerated::Server, &["epoll"], true);
}
