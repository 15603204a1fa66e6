//! One episode: a place, some sessions, and random disturbances, all from one seed. At the end
//! every disturbance is undone, and every program has to end as if there had been none.
//!
//! Not here: the number of episodes (`torture`).

use super::field::Field;
use super::judge::Verdict;
use super::kind::Kind;
use super::strikes::strike;
use super::tally::{Fault, Tally};
use super::testbed::Testbed;
use crate::leftovers::{keeper, keeper_path};
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use sojourn_lab::Running;
use sojourn_lab::net::Conditions;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest times for sessions to begin, for programs to end, and for servers to forget sessions.
const BEGIN: Duration = Duration::from_secs(30);
const FINISH: Duration = Duration::from_secs(60);
const FORGET: Duration = Duration::from_secs(20);
/// Number of disturbances of an episode, milliseconds between two, and number of sessions.
const STRIKES: std::ops::RangeInclusive<u64> = 15..=40;
const GAP_MS: std::ops::RangeInclusive<u64> = 5..=200;
const SESSIONS: std::ops::RangeInclusive<u64> = 1..=4;
/// Number of the last lines of history that are printed with a fault.
const NAMED: usize = 30;

/// The conditions that all episodes share.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    /// True if two hosts can be made.
    pub(super) has_hosts: bool,
    /// The path of the compiled `c/hostile`.
    pub(super) hostile_program: Option<PathBuf>,
    /// Number of disturbances; random if `None`.
    pub(super) strikes: Option<u64>,
}

struct Episode {
    field: Field,
    seed: u64,
    last: Kind,
}

/// Runs the episode of a seed.
pub(super) fn run(seed: u64, given: &Given) -> Tally {
    let mut random = Random::new(seed);
    let is_between_hosts = given.has_hosts && random.percent(50);
    let testbed =
        if is_between_hosts { Testbed::two(&mut random) } else { Testbed::one(&mut random) };
    let testbed = match testbed {
        Ok(testbed) => testbed,
        Err(error) => {
            let mut tally = Tally { episodes: 1, ..Tally::default() };
            let what = format!("the place cannot be made: {error:#}");
            tally.faults.push(Fault::new(seed, Kind::Recall, what));
            return tally;
        }
    };
    let field = Field::new(testbed, random, given.hostile_program.clone());
    let mut episode = Episode { field, seed, last: Kind::Recall };
    let strikes = given.strikes;
    if let Err(error) = episode.play(strikes).and_then(|()| episode.finish()) {
        episode.fault(&format!("{error:#}"));
    }
    episode.leave()
}

impl Episode {
    /// Records a fault, with the recent history and the servers' warnings.
    fn fault(&mut self, what: &str) {
        let (seed, after) = (self.seed, self.last);
        self.field.note("seen");
        for which in self.field.testbed.served() {
            // Only the server's output is wanted; an error of its end adds nothing.
            let _ = self.field.testbed.end(which, Signal::TERM);
        }
        let history = &self.field.history;
        let history = history[history.len().saturating_sub(NAMED)..].join("; ");
        let (name, warned) = (&self.field.testbed.name, self.field.testbed.warned.join("; "));
        let what = format!("{what} [{name}; {history}; {warned}]");
        self.field.tally.row(after).faults += 1;
        self.field.tally.faults.push(Fault::new(seed, after, what));
    }

    /// Starts sessions, and disturbs them.
    fn play(&mut self, strikes: Option<u64>) -> Result<()> {
        for _ in 0..self.field.random.within(SESSIONS) {
            self.field.start_pair()?;
        }
        self.await_begun()?;
        let strikes = strikes.unwrap_or_else(|| self.field.random.within(STRIKES));
        for _ in 0..strikes {
            let until = Instant::now() + self.field.random.ms(GAP_MS);
            while Instant::now() < until {
                self.field.undo(false)?;
                self.look()?;
                std::thread::sleep(Duration::from_millis(3));
            }
            self.count()?;
            let number = self.field.random.next();
            let kind = Kind::any(number, self.field.testbed.is_between_hosts());
            self.strike(kind)?;
        }
        self.count()
    }

    fn strike(&mut self, kind: Kind) -> Result<()> {
        let sessions = self.field.pairs.iter().filter(|pair| pair.is_whole()).count() as u64;
        let away = self.field.testbed.away().context("what is away")?;
        let before = std::mem::replace(&mut self.last, kind);
        self.field.note(kind.name());
        if !strike(&mut self.field, kind).with_context(|| kind.name())? {
            self.last = before;
            self.field.note("not possible");
            return Ok(());
        }
        let row = self.field.tally.row(kind);
        row.count += 1;
        row.sessions += sessions;
        row.away += away;
        Ok(())
    }

    fn await_begun(&mut self) -> Result<()> {
        let deadline = Instant::now() + BEGIN;
        while !self.field.pairs.iter().all(super::pair::Pair::is_whole) {
            self.look()?;
            if Instant::now() >= deadline {
                let late = self.field.pairs.iter().filter(|pair| !pair.is_whole());
                let late: Vec<_> = late.map(super::pair::Pair::describe).collect();
                bail!("sessions have not begun: {}", late.join("; "));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(())
    }

    /// Counts the moves and the checked bytes since the last disturbance.
    fn count(&mut self) -> Result<()> {
        let bytes: u64 = self.field.pairs.iter_mut().map(super::pair::Pair::new_bytes).sum();
        let moves = self.field.testbed.new_moves().context("how much has moved")?;
        let row = self.field.tally.row(self.last);
        row.bytes += bytes;
        row.moves += moves;
        Ok(())
    }

    /// Finds programs that have ended, and judges their ends.
    fn look(&mut self) -> Result<()> {
        let is_due = |pair: &mut super::pair::Pair| pair.has_failed() || pair.is_due();
        while let Some(at) = self.field.pairs.iter_mut().position(is_due) {
            self.judge(at, Duration::from_secs(10))?;
            self.field.start_pair()?;
        }
        self.field.start_owed()?;
        let is_over =
            |running: &mut Running, deadline| !running.is_running() || Instant::now() > deadline;
        while let Some(at) =
            self.field.hostile.iter_mut().position(|one| is_over(&mut one.running, one.deadline))
        {
            self.judge_hostile(at, Duration::ZERO)?;
        }
        self.look_at_servers()
    }

    /// Removes a pair and judges it.
    fn judge(&mut self, at: usize, limit: Duration) -> Result<()> {
        let mut pair = self.field.pairs.swap_remove(at);
        self.field.tally.row(self.last).bytes += pair.new_bytes();
        let name = pair.name.clone();
        let now = Instant::now();
        let may_be_lost = self.field.testbed.is_between_hosts()
            && self.field.lossy_until.is_some_and(|until| now < until);
        match pair.finish(limit)? {
            Verdict::Whole => self.field.tally.whole += 1,
            Verdict::Cut => self.field.tally.cut += 1,
            Verdict::Lost(what) if may_be_lost => {
                self.field.tally.lost.push(format!("seed {}: {name}: {what}", self.seed));
            }
            Verdict::Lost(what) => bail!("{name}: a session has ended that nobody ended: {what}"),
            Verdict::Wrong(what) => bail!("{name}: {what}"),
        }
        Ok(())
    }

    fn judge_hostile(&mut self, at: usize, limit: Duration) -> Result<()> {
        let hostile = self.field.hostile.swap_remove(at);
        let name = format!("a program with hostile peers, {}", hostile.name);
        let ended = hostile.running.finish(limit).with_context(|| name.clone())?;
        ended.success(&name).map(drop)
    }

    /// Checks the servers: a server may end by itself only for want of memory.
    fn look_at_servers(&mut self) -> Result<()> {
        for which in self.field.testbed.served() {
            let state = self.field.testbed.servers[which];
            let world = self.field.testbed.world(which);
            if world.server_pid().is_none() || world.has_server() {
                continue;
            }
            let said = world.stop_server()?;
            ensure!(state.may_starve, "the server has ended by itself: {said:?}");
            self.field.tally.starved += 1;
            self.field.lossy_until = Some(Instant::now() + Duration::from_secs(10));
            self.field.testbed.start(which).context("a server after one without memory")?;
        }
        Ok(())
    }

    /// Undoes all disturbances and ends the programs, which all have to end well.
    fn finish(&mut self) -> Result<()> {
        self.field.undo(true)?;
        // Undo steps that the first round has postponed: a server starts only when the disk has
        // room.
        std::thread::sleep(Duration::from_millis(60));
        self.field.undo(true)?;
        self.field.testbed.change_weather(Conditions::default)?;
        self.look()?;
        self.await_begun()?;
        std::fs::write(&self.field.end, "").context("the file that ends all")?;
        while !self.field.pairs.is_empty() {
            self.judge(0, FINISH)?;
        }
        while !self.field.hostile.is_empty() {
            self.judge_hostile(0, FINISH)?;
        }
        self.look_at_servers()?;
        self.field.testbed.await_none_away(FORGET)?;
        self.count()?;
        for which in self.field.testbed.served() {
            self.field.testbed.end(which, Signal::TERM).context("the server at the end")?;
            let path = keeper_path(self.field.testbed.world(which));
            let deadline = Instant::now() + FORGET;
            while let Some(pid) = keeper(&path) {
                ensure!(Instant::now() < deadline, "a keeper is left behind: {pid}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Ends the episode. After a fault, programs may still be stopped and the disk full, so
    /// everything is undone here too.
    fn leave(mut self) -> Tally {
        if let Err(error) = self.field.undo(true) {
            eprintln!("torture: left as it is: {error:#}");
        }
        std::mem::take(&mut self.field.tally)
    }
}
