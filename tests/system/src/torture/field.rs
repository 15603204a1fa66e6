//! The parts of an episode, and the undoing of disturbances.
//!
//! Not here: the disturbances (`strikes`) and their times (`episode`).

use super::pair::{Pair, signal};
use super::tally::Tally;
use super::testbed::{Testbed, weather};
use crate::random::Random;
use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use sojourn_lab::Running;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The undoing of a disturbance.
#[derive(Debug)]
pub(super) enum Undo {
    /// Continues a stopped process.
    Continue(u32),
    /// Continues a stopped server.
    ContinueServer(usize, u32),
    /// Gives a process its old limit.
    Limit(u32, Resource, Rlimit),
    /// Gives a server its old limit.
    ServerLimit(usize, u32, Resource, Rlimit),
    /// Removes the files that fill the disk.
    Disk(PathBuf),
    /// Gives the link its carrier.
    Carrier,
    /// Starts a server.
    Start(usize),
}

/// The undoing of a disturbance at its time.
pub(super) struct Due {
    at: Instant,
    undo: Undo,
}

/// A program with hostile peers.
pub(super) struct Hostile {
    pub(super) running: Running,
    pub(super) name: String,
    pub(super) deadline: Instant,
}

/// The parts of an episode. In the order of the fields, programs are dropped before their place.
pub(super) struct Field {
    pub(super) pairs: Vec<Pair>,
    pub(super) hostile: Vec<Hostile>,
    pub(super) undo: Vec<Due>,
    pub(super) testbed: Testbed,
    pub(super) random: Random,
    pub(super) tally: Tally,
    /// The file whose existence ends all programs.
    pub(super) end: PathBuf,
    /// The compiled program with hostile peers.
    pub(super) hostile_program: Option<PathBuf>,
    /// Time until which remote sessions may end because a server was killed while it held them.
    pub(super) lossy_until: Option<Instant>,
    /// Time until which no server is killed, because its keeper was killed and is not replaced yet.
    pub(super) kept_again: Option<Instant>,
    pub(super) number: usize,
    /// Number of sessions that have to wait until the disk has room.
    owed: usize,
    begun: Instant,
    /// The disturbances with their times, for the search for a fault's cause.
    pub(super) history: Vec<String>,
}

impl Field {
    /// Makes a field without sessions.
    pub(super) fn new(testbed: Testbed, random: Random, hostile_program: Option<PathBuf>) -> Self {
        let end = testbed.folder().join("end");
        let tally = Tally { episodes: 1, ..Tally::default() };
        let (pairs, hostile, undo, history) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            pairs,
            hostile,
            undo,
            testbed,
            random,
            tally,
            end,
            hostile_program,
            lossy_until: None,
            kept_again: None,
            number: 0,
            owed: 0,
            begun: Instant::now(),
            history,
        }
    }

    /// Adds a line to the history.
    pub(super) fn note(&mut self, what: &str) {
        self.history.push(format!("{:.3} {what}", self.begun.elapsed().as_secs_f64()));
    }

    /// Starts a session; if the disk has no room for its files, later.
    pub(super) fn start_pair(&mut self) -> Result<()> {
        if self.is_disk_full() {
            self.owed += 1;
            return Ok(());
        }
        self.number += 1;
        let pair = Pair::start(&self.testbed, self.number, &mut self.random, &self.end)?;
        self.pairs.push(pair);
        Ok(())
    }

    /// Starts the sessions that had to wait.
    pub(super) fn start_owed(&mut self) -> Result<()> {
        while self.owed > 0 && !self.is_disk_full() {
            self.owed -= 1;
            self.start_pair()?;
        }
        Ok(())
    }

    /// Undoes a disturbance after a time.
    pub(super) fn later(&mut self, after: Duration, undo: Undo) {
        self.undo.push(Due { at: Instant::now() + after, undo });
    }

    /// Undoes the disturbances that are due, or all of them.
    pub(super) fn undo(&mut self, all: bool) -> Result<()> {
        let now = Instant::now();
        let waiting = std::mem::take(&mut self.undo);
        let (mut due, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|one| all || one.at <= now);
        self.undo = waiting;
        // Servers start last, because they cannot start while the disk is full.
        due.sort_by_key(|one| (matches!(one.undo, Undo::Start(_)), one.at));
        due.into_iter().try_for_each(|one| self.undo_one(one.undo))
    }

    fn undo_one(&mut self, undo: Undo) -> Result<()> {
        match undo {
            Undo::Continue(pid) => signal(pid, Signal::CONT),
            Undo::ContinueServer(which, pid) => {
                signal(pid, Signal::CONT);
                self.testbed.servers[which].is_hampered = false;
            }
            Undo::Limit(pid, resource, limit) => set_limit(pid, resource, limit),
            Undo::ServerLimit(which, pid, resource, limit) => {
                set_limit(pid, resource, limit);
                self.testbed.servers[which].is_hampered = false;
            }
            Undo::Disk(folder) => {
                self.note("disk free");
                std::fs::remove_dir_all(&folder).context("the files that fill the disk")?;
            }
            Undo::Carrier => drop(self.testbed.set_carrier(true)?),
            Undo::Start(which) if self.is_disk_full() => {
                self.later(Duration::from_millis(50), Undo::Start(which));
            }
            Undo::Start(which) => {
                self.note(&format!("server {which} started"));
                self.testbed.start(which).context("the server started again")?;
            }
        }
        Ok(())
    }

    /// Returns true if the disk is full.
    pub(super) fn is_disk_full(&self) -> bool {
        self.undo.iter().any(|one| matches!(one.undo, Undo::Disk(_)))
    }

    /// Returns true if a server is stopped, or short of a resource.
    pub(super) fn is_hampered(&self, which: usize) -> bool {
        self.testbed.servers[which].is_hampered
    }

    /// Gives the link other random conditions.
    pub(super) fn change_weather(&mut self) -> Result<bool> {
        let random = &mut self.random;
        self.testbed.change_weather(|| weather(random))
    }
}

/// Sets a limit of a process; returns the old one, or `None` if the process has ended.
pub(super) fn limit(pid: u32, resource: Resource, value: u64) -> Option<Rlimit> {
    // The hard limit stays: it is this process's, which all others here have inherited.
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(value, |most| most.min(value)));
    prlimit(Some(Pid::from_raw(pid.cast_signed())?), resource, Rlimit { current, maximum }).ok()
}

fn set_limit(pid: u32, resource: Resource, limit: Rlimit) {
    if let Some(process) = Pid::from_raw(pid.cast_signed()) {
        // Fails if the process has ended meanwhile.
        let _ = prlimit(Some(process), resource, limit);
    }
}
