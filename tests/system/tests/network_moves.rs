//! Tests of the cost of moves for programs that talk meanwhile over remote sessions, with limits so
//! wide that a busy machine keeps them.
//!
//! `sojourn-bench net --row stall` measures how long a stream stands still; no test asserts it. Not
//! here: the check that every byte arrives (`network`, `network_events`, `network_server`). Needs
//! rights over networks; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{End, Link};
use sojourn_lab::{Running, Sandbox};
use sojourn_system::LIMIT;
use sojourn_system::network::{Accelerated, Stage, hosts, retransmission_timeouts};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time for which questions are asked.
const LENGTH: Duration = Duration::from_secs(4);
/// Time between two recalls of all sessions.
const EVERY: Duration = Duration::from_millis(20);
/// Smallest number of moves: with fewer a test has shown nothing.
const MOVES: u64 = 4;
/// Shortest time of an answer that came by a retransmission time-out, because the question or the
/// answer was lost.
const TIME_OUT_NS: u64 = 180_000_000;
/// Largest number of descriptors that a process may have more than during its first moves. Some
/// descriptors of each move are closed a moment later.
const DESCRIPTORS: usize = 40;
/// The time after which the library no longer keeps the program's calls away for a descriptor at a
/// low number (`LOST` in `host::numbers` of the library).
const HELD_MAX: Duration = Duration::from_millis(500);

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Returns the library's descriptors among the low numbers of a program, below the range to which
/// the library moves its own.
///
/// They are recognized by their kind, because a program of TCP sockets makes none of these itself:
/// Unix sockets beyond the standard streams, event descriptors, memory files.
fn library_s_at_low_numbers(pid: u32) -> BTreeSet<String> {
    const HIDDEN_FROM: u32 = 256;
    let unix = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let unix: Vec<&str> = unix.lines().filter_map(|line| line.split_whitespace().nth(6)).collect();
    let is_unix = |to: &str| {
        let inode = to.strip_prefix("socket:[").and_then(|to| to.strip_suffix(']'));
        inode.is_some_and(|inode| unix.contains(&inode))
    };
    let numbers = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let low = numbers.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let to = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        let is_own = is_unix(&to) || to.contains("eventfd") || to.contains("memfd:");
        ((3..HIDDEN_FROM).contains(&number) && is_own).then(|| format!("{number}: {to}"))
    });
    low.collect()
}

/// Returns those of [`library_s_at_low_numbers`] that stay there.
///
/// A new descriptor has a low number until it is moved; the library keeps the program's calls away
/// meanwhile, but not this process, which sees it for as long as the thread that moves it waits for
/// a processor.
fn left_at_low_numbers(pid: u32) -> BTreeSet<String> {
    let mut left = library_s_at_low_numbers(pid);
    let begun = Instant::now();
    while !left.is_empty() && begun.elapsed() < HELD_MAX {
        std::thread::sleep(Duration::from_millis(1));
        let now = library_s_at_low_numbers(pid);
        left.retain(|one| now.contains(one));
    }
    left
}

/// The result of questions and answers whose session moved meanwhile.
struct Found {
    moves: u64,
    answers: u64,
    /// Number of answers that took a time-out.
    late: u64,
    longest_ms: u64,
    /// Retransmission time-outs that ran out in the kernels of both hosts.
    timeouts: u64,
    /// Largest numbers of descriptors of the program, and of its server's processes that speak with
    /// it and carry its sessions: during the first moves, and later.
    descriptors: [[usize; 3]; 2],
    /// The library's descriptors that stayed among the program's low numbers.
    at_low_numbers: BTreeSet<String>,
}

fn ask(link: &Link, accelerated: Accelerated) -> Found {
    let count = || -> u64 {
        [End::A, End::B].map(|end| retransmission_timeouts(link.host(end)).unwrap()).iter().sum()
    };
    let before = count();
    let stage = Stage::new(link, accelerated).unwrap();
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
    let part = |name: &str| stage.worlds[end as usize].server_part(name).unwrap();
    let watched = [program, part("front"), part("carrier")];
    let mut found = [[0; 3]; 2];
    let mut at_low_numbers = BTreeSet::new();
    let deadline = Instant::now() + LIMIT;
    while client.is_running() && Instant::now() < deadline {
        for admin in &mut admins {
            admin.recall_all().unwrap();
        }
        // Until then the process is `sojourn run`, which has a connection of its own.
        let exe = std::fs::read_link(format!("/proc/{program}/exe"));
        if exe.is_ok_and(|path| path.ends_with("lab-bench")) {
            at_low_numbers.extend(left_at_low_numbers(program));
        }
        let now = watched.map(descriptors);
        let which = usize::from(stage.moves().unwrap() >= MOVES);
        found[which] = [0, 1, 2].map(|at| found[which][at].max(now[at]));
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
    let timeouts = count() - before;
    Found { moves, answers, late, longest_ms, timeouts, descriptors: found, at_low_numbers }
}

#[test]
fn those_who_ask_wait_little() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
        let found = ask(&link, accelerated);
        let Found { moves, answers, late, longest_ms, timeouts, .. } = found;
        println!(
            "{accelerated:?}: {moves} moves, {answers} answers, {late} late, most {longest_ms} ms, \
             {timeouts} time-outs"
        );
        assert!(found.moves >= MOVES, "{accelerated:?}: only {} moves", found.moves);
        // Where frames of a moving session are lost, about every second move takes a time-out. On a
        // busy machine one may run out by itself.
        assert!(2 * found.late <= found.moves, "{accelerated:?}: {} answers came late", found.late);
        assert!(timeouts <= 1 + moves / 10, "{accelerated:?}: {timeouts} time-outs");
        let low = found.at_low_numbers;
        assert!(low.is_empty(), "{accelerated:?}: the library's at low numbers: {low:?}");
        let [first, later] = found.descriptors;
        let has_grown = (0..2).any(|at| later[at] > first[at] + DESCRIPTORS);
        assert!(
            !has_grown,
            "{accelerated:?}: {later:?} descriptors, {first:?} during the first moves"
        );
    }
}

/// Number of sessions of one program. Each does so little that its own rate is no bulk.
const MANY: usize = 20;

/// How many of the sessions with other hosts at a port are where.
#[derive(Debug, Default)]
struct Homes {
    away: usize,
    /// In the kernel, to be measured there.
    tried: usize,
    /// In the kernel, because it was measured to be faster.
    slower: usize,
}

fn homes(world: &Sandbox, address: &str) -> Homes {
    let all = world.sessions().unwrap();
    let mut homes = Homes::default();
    for session in all["sessions"].as_array().unwrap() {
        if session["from"] != address {
            continue;
        }
        match (session["home"].as_str().unwrap(), session["reason"].as_str()) {
            ("library", _) => homes.away += 1,
            (_, Some("trial")) => homes.tried += 1,
            (_, Some("slower")) => homes.slower += 1,
            _ => {}
        }
    }
    homes
}

/// The sessions of a server with many clients are measured together, because each of them makes the
/// progress that the server's thread makes. Which home is faster depends on the machine, so both
/// answers are right here.
#[test]
fn sessions_that_share_a_thread_are_measured_together() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut stage = Stage::new(&link, Accelerated::Server).unwrap();
    // The default: other thresholds are taken at their word, and nothing is measured.
    stage.worlds[0].set("MOVE_AFTER_CALLS", "32");
    let address = format!("{}:{}", stage.address, stage.port);
    let bench = stage.worlds[0].built().path("lab-bench").to_string_lossy().into_owned();
    let start = |end: End, words: &[&str]| {
        let mut command = stage.command(end, &bench);
        command.args(words);
        Running::start(command).unwrap()
    };
    let _server = start(End::A, &["many-serve", &address]);
    stage.await_listener(&link, stage.port).unwrap();
    let (sessions, time) = (MANY.to_string(), LIMIT.as_millis().to_string());
    let words = ["many", &address, "--sessions", &sessions, "--time-ms", &time];
    let mut client = start(End::B, &words);
    let until = |what: &str, is_so: &dyn Fn(&Homes) -> bool| {
        let deadline = Instant::now() + LIMIT / 2;
        loop {
            let now = homes(&stage.worlds[0], &address);
            if is_so(&now) {
                return now;
            }
            assert!(Instant::now() < deadline, "{what}: not seen; {now:?}");
            std::thread::sleep(EVERY);
        }
    };
    until("all are away", &|now| now.away == MANY);
    until("a trial of most", &|now| now.tried + now.slower > MANY / 2);
    let now = until("the answer", &|now| now.away == MANY || now.slower == MANY);
    assert!(client.is_running(), "the sessions go on");
    println!("after the trial: {now:?}");
}
