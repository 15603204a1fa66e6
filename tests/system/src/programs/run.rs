//! One run of a script: what it printed, how long it was busy, what was left behind.

use super::seen::{Look, Seen, watch};
use crate::Admin;
use crate::catalog::Program;
use crate::world::World;
use anyhow::{Result, anyhow};
use sojourn_lab::{Mode, Running};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The way in which a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// Without Sojourn.
    Plain,
    /// Under `sojourn run` with default settings, and those that the script needs.
    Default,
    /// Every session is offered at its first call.
    Eager,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The script ended: its output and its status.
    Said(String),
    /// The script was ended at its time limit.
    Hung,
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// From beginning to end.
    pub took: Duration,
    /// The sum of the parts that the script has timed itself; zero if there is none.
    pub busy: Duration,
    /// Number of streams made.
    pub streams: u64,
    /// What was seen meanwhile.
    pub seen: Seen,
    /// Number of processes that were left behind.
    pub left_behind: usize,
}

/// Runs a script once.
///
/// # Errors
/// If there is no sandbox for it, or the server does not answer.
pub fn once(program: &Program, way: RunMode, look: Look) -> Result<Outcome> {
    let mode = if way == RunMode::Plain { Mode::Plain } else { Mode::Sojourn };
    let mut world = World::new(mode)?;
    for setting in &program.settings {
        world.sandbox.set(setting, "on");
    }
    if way == RunMode::Eager {
        world.sandbox.set("MOVE_AFTER_CALLS", "0");
    }
    let mut command = world.script(&format!("{}.sh", program.name))?;
    let times = world.sandbox.folder().join("times");
    command.env("BUSY", &times);
    let start = Instant::now();
    let running = Running::start(command)?;
    let is_over = AtomicBool::new(false);
    let (finished, took, seen) = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let finished = running.finish(program.limit);
            is_over.store(true, Ordering::SeqCst);
            (finished, start.elapsed())
        });
        let seen = watch(&world.sandbox, look, &program.runs, &is_over);
        let ended = waiter.join();
        ended.map(|(finished, took)| (finished, took, seen))
    })
    .map_err(|_| anyhow!("the thread that waits for the script has panicked"))?;
    let streams = Admin::new(&world.sandbox)?.moves()?.joins;
    let folder = world.sandbox.folder().to_string_lossy().into_owned();
    let end = match finished {
        Ok(finished) => {
            let output = format!("{}{}status {}", finished.out, finished.err, finished.status);
            End::Said(output.replace(&folder, "FOLDER"))
        }
        Err(_) => End::Hung,
    };
    let left_behind = if end == End::Hung { 0 } else { world.left_behind().len() };
    let busy = busy_time(&std::fs::read_to_string(times).unwrap_or_default());
    Ok(Outcome { end, took, busy, streams, seen, left_behind })
}

/// Adds up the lines that `busy` of the scripts' prelude writes: beginning and end in seconds.
fn busy_time(text: &str) -> Duration {
    let seconds = text.lines().filter_map(|line| {
        let (from, to) = line.split_once(' ')?;
        Some(to.parse::<f64>().ok()? - from.parse::<f64>().ok()?)
    });
    Duration::try_from_secs_f64(seconds.sum()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_parts_add_up() {
        assert_eq!(busy_time(""), Duration::ZERO);
        let text = "100.250000 101.500000\nnonsense\n200.000000 200.750000\n";
        assert_eq!(busy_time(text), Duration::from_secs(2));
        assert_eq!(busy_time("5.0 1.0\n"), Duration::ZERO, "the clock was set back");
    }
}
