//! What an episode consists of, and what is undone later.
//!
//! Not what is done (`strikes`), nor when (`episode`).

use super::pair::{Pair, signal};
use super::place::{Place, weather};
use super::random::Random;
use super::tally::Tally;
use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use sojourn_lab::Running;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What undoes a disturbance.
#[derive(Debug)]
pub(super) enum Undo {
    /// A process goes on.
    Continue(u32),
    /// A server goes on.
    ContinueServer(usize, u32),
    /// A process has its limits back.
    Limit(u32, Resource, Rlimit),
    /// A server has.
    ServerLimit(usize, u32, Resource, Rlimit),
    /// There is room on the disk.
    Disk(PathBuf),
    /// The cable is in.
    Carrier,
    /// There is a server.
    Start(usize),
}

/// A program with hostile peers.
pub(super) struct Hostile {
    pub(super) running: Running,
    pub(super) name: String,
    pub(super) deadline: Instant,
}

/// All that an episode has. Programs end before their place.
pub(super) struct Field {
    pub(super) pairs: Vec<Pair>,
    pub(super) hostile: Vec<Hostile>,
    pub(super) undo: Vec<(Instant, Undo)>,
    pub(super) place: Place,
    pub(super) random: Random,
    pub(super) tally: Tally,
    /// The file that ends all programs.
    pub(super) end: PathBuf,
    /// The compiled program that has hostile peers.
    pub(super) hostile_program: Option<PathBuf>,
    /// Within this time after a kill sessions with another host may end that were in the server's
    /// hands.
    pub(super) lossy_until: Option<Instant>,
    /// Until then no server is killed: a keeper was.
    pub(super) kept_again: Option<Instant>,
    pub(super) number: usize,
    /// Sessions to be added once there is room.
    owed: usize,
    begun: Instant,
    /// What was done when, for who looks for a fault's reason.
    pub(super) history: Vec<String>,
}

impl Field {
    /// A place with nobody yet.
    pub(super) fn new(place: Place, random: Random, hostile_program: Option<PathBuf>) -> Self {
        let end = place.folder().join("end");
        let tally = Tally { episodes: 1, ..Tally::default() };
        let (pairs, hostile, undo, history) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            pairs,
            hostile,
            undo,
            place,
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

    /// Notes what is done now.
    pub(super) fn note(&mut self, what: &str) {
        self.history.push(format!("{:.3} {what}", self.begun.elapsed().as_secs_f64()));
    }

    /// Adds a session, now or once there is room for its files.
    pub(super) fn start_pair(&mut self) -> Result<()> {
        if self.is_disk_full() {
            self.owed += 1;
            return Ok(());
        }
        self.number += 1;
        let pair = Pair::start(&self.place, self.number, &mut self.random, &self.end)?;
        self.pairs.push(pair);
        Ok(())
    }

    /// Adds the sessions for which there was no room.
    pub(super) fn start_owed(&mut self) -> Result<()> {
        while self.owed > 0 && !self.is_disk_full() {
            self.owed -= 1;
            self.start_pair()?;
        }
        Ok(())
    }

    /// Undoes something after a while.
    pub(super) fn later(&mut self, after: Duration, undo: Undo) {
        self.undo.push((Instant::now() + after, undo));
    }

    /// Undoes what is due; all of it, if it is to be.
    pub(super) fn undo(&mut self, all: bool) -> Result<()> {
        let now = Instant::now();
        let waiting = std::mem::take(&mut self.undo);
        let (mut due, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(at, _)| all || *at <= now);
        self.undo = waiting;
        // Nobody can start a server on a disk that is full.
        due.sort_by_key(|(at, undo)| (matches!(undo, Undo::Start(_)), *at));
        due.into_iter().try_for_each(|(_, undo)| self.undo_one(undo))
    }

    fn undo_one(&mut self, undo: Undo) -> Result<()> {
        match undo {
            Undo::Continue(pid) => signal(pid, Signal::CONT),
            Undo::ContinueServer(which, pid) => {
                signal(pid, Signal::CONT);
                self.place.servers[which].is_hampered = false;
            }
            Undo::Limit(pid, resource, limit) => set_limit(pid, resource, limit),
            Undo::ServerLimit(which, pid, resource, limit) => {
                set_limit(pid, resource, limit);
                self.place.servers[which].is_hampered = false;
            }
            Undo::Disk(folder) => {
                self.note("disk free");
                std::fs::remove_dir_all(&folder).context("the files that fill the disk")?;
            }
            Undo::Carrier => drop(self.place.set_carrier(true)?),
            Undo::Start(which) if self.is_disk_full() => {
                self.later(Duration::from_millis(50), Undo::Start(which));
            }
            Undo::Start(which) => {
                self.note(&format!("server {which} started"));
                self.place.start(which).context("the server started again")?;
            }
        }
        Ok(())
    }

    /// Whether something fills the disk.
    pub(super) fn is_disk_full(&self) -> bool {
        self.undo.iter().any(|(_, undo)| matches!(undo, Undo::Disk(_)))
    }

    /// Whether a server stands still, or is short of something.
    pub(super) fn is_hampered(&self, which: usize) -> bool {
        self.place.servers[which].is_hampered
    }

    /// Another weather for the link.
    pub(super) fn change_weather(&mut self) -> Result<bool> {
        let random = &mut self.random;
        self.place.change_weather(|| weather(random))
    }
}

/// A limit's new value; what it was. `None` if the process has ended.
pub(super) fn limit(pid: u32, resource: Resource, value: u64) -> Option<Rlimit> {
    // What may be at most it has from this process, as everybody here.
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(value, |most| most.min(value)));
    prlimit(Some(Pid::from_raw(pid.cast_signed())?), resource, Rlimit { current, maximum }).ok()
}

fn set_limit(pid: u32, resource: Resource, limit: Rlimit) {
    if let Some(process) = Pid::from_raw(pid.cast_signed()) {
        // It may have ended meanwhile.
        let _ = prlimit(Some(process), resource, limit);
    }
}
