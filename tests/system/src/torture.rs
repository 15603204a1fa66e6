//! `cargo xtask torture`: sessions of all kinds, and everything that can be done to them at once,
//! with every byte checked by the programs themselves.
//!
//! An **episode** has a seed, from which everything by chance in it comes: where it plays, which
//! sessions, which disturbances, when. Nothing else is the same in two runs of a seed, so that a
//! fault takes some runs to be seen again. Not here: which words the program takes
//! (`bin/torture.rs`). Read `docs/understand/testing.md` first.

mod episode;
mod field;
mod isolated;
mod judge;
mod kind;
mod pair;
mod place;
mod random;
mod strikes;
mod tally;

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

/// No episode takes longer: all waits in it have an end before.
const EPISODE: Duration = Duration::from_secs(600);
/// Between two lines of progress where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first episode's seed; the next one's is one more.
    pub seed: u64,
    /// No episode begins after this time.
    pub time: Duration,
    /// At most so many.
    pub episodes: u64,
    /// Disturbances of each episode, if not by chance.
    pub strikes: Option<u64>,
    /// Where the counts go, as JSON.
    pub json: Option<PathBuf>,
}

/// Starts this program again in name spaces of its own, in its place, if it is not in them and they
/// can be had.
///
/// # Errors
/// If it cannot be started.
pub fn isolate() -> Result<()> {
    isolated::again()
}

/// Runs episodes until time or their number is over, and prints the table; whether there was no
/// fault.
///
/// # Errors
/// If something is not built, or the counts cannot be written.
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
        let one = episode::run(seed, &given);
        for fault in &one.faults {
            eprintln!(
                "{}torture: seed {seed}: {}",
                if is_terminal { "\n" } else { "" },
                fault.what
            );
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

/// Ends the process if an episode does not end; the word to be set when one begins: its seed, and
/// the second of its beginning.
fn watch() -> &'static AtomicU64 {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
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

/// `c/hostile`, compiled; `None`, and it is said, without a compiler.
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
