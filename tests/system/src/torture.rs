//! `cargo xtask torture`: sessions of all kinds under all disturbances at once, whose programs
//! check every byte.
//!
//! An **episode** has a seed, from which all its random choices come: the place, the sessions, the
//! disturbances and their times. Only these choices are the same in two runs of a seed, so that a
//! fault may take several runs to appear again. Not here: the command line (`bin/torture.rs`). Read
//! `docs/understand/testing.md` first.

mod episode;
mod field;
mod isolated;
mod judge;
mod kind;
mod pair;
mod strikes;
mod tally;
mod testbed;

use crate::compile::compile;
use anyhow::{Context, Result};
use episode::Given;
use sojourn_lab::Built;
use sojourn_lab::net::{is_possible, sweep_own};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tally::Tally;

/// Longest time of an episode: all its waits end earlier.
const EPISODE: Duration = Duration::from_secs(600);
/// Time between two looks of the watchdog.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time between two lines of progress, if the output is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of the first episode; each next one's is higher by one.
    pub seed: u64,
    /// Time after which no episode begins.
    pub time: Duration,
    /// Largest number of episodes.
    pub episodes: u64,
    /// Number of disturbances of each episode; random if `None`.
    pub strikes: Option<u64>,
    /// File for the counters, as JSON.
    pub json: Option<PathBuf>,
}

/// Replaces this program by itself in name spaces of its own, unless it is in them already or they
/// are not allowed.
///
/// # Errors
/// If it cannot be started.
pub fn isolate() -> Result<()> {
    isolated::again()
}

/// Runs episodes until the time or their number is reached, and prints the table. Returns true if
/// there was no fault.
///
/// # Errors
/// If a program is not built, or the counters cannot be written.
pub fn run(options: &Options) -> Result<bool> {
    let given = Given {
        has_hosts: is_possible(),
        hostile_program: hostile_program()?,
        strikes: options.strikes,
    };
    let mut tally = Tally::default();
    let begun = Instant::now();
    let watched = watch();
    let mut shown: Option<Instant> = None;
    let is_terminal = std::io::stderr().is_terminal();
    while tally.episodes < options.episodes && begun.elapsed() < options.time {
        let seed = options.seed + tally.episodes;
        watched.store((seed << 32) | (begun.elapsed().as_secs() + 1), Ordering::SeqCst);
        STOOD_STILL_MS.store(0, Ordering::SeqCst);
        let mut one = episode::run(seed, &given);
        let stood_still = Duration::from_millis(STOOD_STILL_MS.load(Ordering::SeqCst));
        one.faults.iter_mut().for_each(|fault| fault.stood_still = stood_still);
        for fault in &one.faults {
            eprintln!("{}torture: seed {seed}: {fault}", if is_terminal { "\n" } else { "" },);
        }
        tally.add(one);
        let line = tally.line(begun.elapsed(), options.time);
        if is_terminal {
            eprint!("\r\x1b[2K{line}");
            std::io::stderr().flush()?;
        } else if shown.is_none_or(|shown| shown.elapsed() >= LINE_EVERY) {
            eprintln!("{line}");
            shown = Some(Instant::now());
        }
    }
    if is_terminal {
        eprintln!();
    }
    if let Some(path) = given.hostile_program {
        let _ = std::fs::remove_file(path);
    }
    println!("{}", tally.table());
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&tally.json())?)
            .with_context(|| file.display().to_string())?;
    }
    Ok(tally.faults.is_empty())
}

/// The longest time for which the machine has stood still in this episode: how much later than
/// asked for the watchdog has woken up.
static STOOD_STILL_MS: AtomicU64 = AtomicU64::new(0);

/// Starts a watchdog that ends the process if an episode does not end. Returns the word to be set
/// at the beginning of each: its seed in the high half, the second of its beginning plus one in the
/// low half.
fn watch() -> &'static AtomicU64 {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::spawn(move || {
        loop {
            let asleep = Instant::now();
            std::thread::sleep(LOOK_EVERY);
            let late = asleep.elapsed().saturating_sub(LOOK_EVERY);
            STOOD_STILL_MS.fetch_max(late.as_millis() as u64, Ordering::SeqCst);
            let (seed, begun) =
                (BEGUN.load(Ordering::SeqCst) >> 32, BEGUN.load(Ordering::SeqCst) & 0xffff_ffff);
            if begun != 0 && start.elapsed().as_secs() > begun + EPISODE.as_secs() {
                eprintln!("torture: the episode of seed {seed} does not end: {EPISODE:?} are over");
                sweep_own();
                std::process::exit(3);
            }
        }
    });
    &BEGUN
}

/// Compiles `c/hostile`. Returns `None`, and prints the reason, without a compiler.
fn hostile_program() -> Result<Option<PathBuf>> {
    Built::find()?;
    let name = format!("sojourn-torture-hostile-{}", std::process::id());
    let program = std::env::temp_dir().join(name);
    match compile(&program, &["hostile/hostile.c"], &["-g"]) {
        Ok(()) => Ok(Some(program)),
        Err(error) => {
            eprintln!("{error:#}: programs with hostile peers are left out");
            Ok(None)
        }
    }
}
