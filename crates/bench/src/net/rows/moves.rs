//! Moves: their rate out of the kernel and home again, the time for which a stream stands still
//! while its session moves, and the longest call while fifty sessions of a program move.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sojourn_lab::Running;

use super::client::ms;
use crate::local::row::{Sample, Unit};
use crate::local::rows::of_lab;
use crate::local::server::{Admin, MoveCounts};
use crate::net::row::{Measured, Row};
use crate::net::way::{Side, Stacks, Wait};
use crate::net::world::{Between, LIMIT, World, parse};
use crate::stats::median;

/// Longest time for all sessions to move.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two recalls of a streaming session.
const EVERY: Duration = Duration::from_millis(100);

/// Name of the case of the usual gap. The client reports the longest time without an arrival in
/// each tenth of a second, in which the session goes home and moves out once; the figure is the
/// median of these times.
pub(in crate::net) const USUAL_GAP: &str = "longest gap in a tenth of a second";
/// Name of the case of the longest gap of all.
const LONGEST_GAP: &str = "longest gap in a stream";

/// Returns all rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    vec![Box::new(Rate), Box::new(Stall), Box::new(FirstSecond)]
}

/// The row of moves per second: from the first call to the last session away, and from the recall
/// to the last session home.
struct Rate;

impl Row for Rate {
    fn name(&self) -> String {
        "moves".into()
    }

    fn group(&self) -> &'static str {
        "moves"
    }

    fn ways(&self) -> &'static [Stacks] {
        &[Stacks::Client]
    }

    fn rounds(&self) -> usize {
        3
    }

    fn turn(&self, world: &World, way: Stacks, _length: Duration) -> Result<Vec<Measured>> {
        let sessions: u64 = if world.quick { 20 } else { 500 };
        let hosts = world.place(way, Between::Wire)?;
        let mut admin = hosts.admin(Side::Client)?.context("no session server")?;
        let address = hosts.free_name();
        let _server = hosts.lab_server(Wait::Default, &["many-serve", &address])?;
        let ready =
            std::env::temp_dir().join(format!("sojourn-bench-moves-{}", std::process::id()));
        let (count, path) = (sessions.to_string(), ready.to_string_lossy().into_owned());
        let MoveCounts { joins, returns } = admin.moves()?;
        let words = ["many", &address, "--sessions", &count, "--ready", &path];
        let mut client = Running::start(hosts.lab(Side::Client, Wait::Default, &words))?;
        until(|| Ok(ready.exists() || !client.is_running()))?;
        let out = until(|| Ok(admin.moves()?.joins >= joins + sessions))?;
        let start = Instant::now();
        // Two ends of every stream come home: the program's, and the carrier's.
        let recalled = admin.recall_all()? as u64;
        until(|| Ok(admin.moves()?.returns >= returns + 2 * recalled))?;
        let home = start.elapsed();
        std::fs::remove_file(&ready)?;
        client.finish(LIMIT)?.success("lab-bench many")?;
        let sample = |case: &str, count: u64, time: Duration| {
            let rate = count as f64 / time.as_secs_f64();
            let sample = Sample::new(case, Unit::PerS, rate, count as f64);
            // This case measures moves themselves, so the check that sessions are away has no
            // meaning.
            Measured { sample, wait: Wait::Default, away: Some(1.0) }
        };
        Ok(vec![sample("sessions out", sessions, out), sample("sessions home", recalled, home)])
    }
}

/// Returns the moves so far at the server of a host that has one.
fn moves_of(admin: &mut Option<Admin>) -> Result<Option<MoveCounts>> {
    admin.as_mut().map(Admin::moves).transpose()
}

/// Waits until `is_so` returns true; returns the time that it took.
fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > PATIENCE {
            bail!("not all had moved after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(start.elapsed())
}

/// The row of the longest call of the first second of fifty sessions, which move meanwhile.
struct FirstSecond;

impl Row for FirstSecond {
    fn name(&self) -> String {
        "first-second".into()
    }

    fn group(&self) -> &'static str {
        "moves"
    }

    fn ways(&self) -> &'static [Stacks] {
        Stacks::OURS
    }

    fn rounds(&self) -> usize {
        5
    }

    fn turn(&self, world: &World, way: Stacks, _length: Duration) -> Result<Vec<Measured>> {
        let hosts = world.place(way, Between::Wire)?;
        let mut admin = hosts.admin(Side::Client)?;
        let address = hosts.free_name();
        let _server = hosts.lab_server(Wait::Default, &["many-serve", &address])?;
        let words = ["first", &address, "--sessions", "50", "--time-ms", "1000"];
        let before = moves_of(&mut admin)?;
        let client = Running::start(hosts.lab(Side::Client, Wait::Default, &words))?;
        let said = parse(&client.finish(LIMIT)?.success("lab-bench first")?)?;
        let after = moves_of(&mut admin)?;
        let moved = before.zip(after).map(|(before, after)| after.joins > before.joins);
        let longest = said["longest_ns"].as_f64().context("no longest call")?;
        let sample = of_lab("longest call of the first second".into(), &said, Unit::Ns);
        let sample = Sample { value: longest, ..sample };
        // If none has moved, no move was measured.
        Ok(vec![Measured { sample, wait: Wait::Default, away: moved.map(f64::from) }])
    }
}

/// The row of the longest time without an arrival on a stream whose session is recalled again and
/// again. The kernel's session never moves.
struct Stall;

impl Row for Stall {
    fn name(&self) -> String {
        "stall".into()
    }

    fn group(&self) -> &'static str {
        "moves"
    }

    fn ways(&self) -> &'static [Stacks] {
        Stacks::OURS
    }

    fn rounds(&self) -> usize {
        3
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        let length = length * 8;
        let hosts = world.place(way, Between::Wire)?;
        let address = hosts.free_name();
        let _server = hosts.lab_server(Wait::Default, &["serve", "tcp", &address])?;
        let (time, warm) = (ms(length), "100");
        let words = ["pull", "tcp", &address, "--size", "16384", "--time-ms", &time];
        let words: Vec<&str> = words.into_iter().chain(["--warm-ms", warm]).collect();
        let mut admin = hosts.admin(Side::Client)?;
        let start = Instant::now();
        let mut client = Running::start(hosts.lab(Side::Client, Wait::Default, &words))?;
        let before = moves_of(&mut admin)?;
        while client.is_running() && start.elapsed() < length {
            std::thread::sleep(EVERY);
            admin.as_mut().map(|admin| admin.recall_all()).transpose()?;
        }
        let after = moves_of(&mut admin)?;
        let said = parse(&client.finish(LIMIT)?.success("lab-bench pull")?)?;
        let gaps = said["gaps_ns"].as_array().context("no gaps")?;
        let gaps: Vec<f64> = gaps.iter().filter_map(serde_json::Value::as_f64).collect();
        let longest = gaps.iter().copied().fold(0.0, f64::max);
        let moves = before.zip(after).map(|(before, after)| after.joins - before.joins);
        let moves = moves.map(|moves| moves as f64);
        // With fewer than two moves, no move of a streaming session was measured.
        let away = moves.map(|moves| if moves < 2.0 { 0.0 } else { 1.0 });
        let measured = |(case, gap)| {
            let sample = Sample::new(case, Unit::Ns, gap, moves.unwrap_or(1.0));
            // The column of the rate has the moves per second.
            let rate = moves.map(|moves| moves / length.as_secs_f64());
            Measured { sample: Sample { rate, ..sample }, wait: Wait::Default, away }
        };
        Ok([(USUAL_GAP, median(&gaps)), (LONGEST_GAP, longest)].map(measured).to_vec())
    }
}
