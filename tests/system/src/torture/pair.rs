//! Two programs that exchange data until they are told to end, or one of them is killed.
//!
//! The programs are `lab-peer`s and check every byte. Not here: the disturbances (`strikes`) and
//! the judgement of ends (`judge`).

use super::judge::{Ended, Verdict};
use super::testbed::Testbed;
use crate::random::Random;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use sojourn_lab::Running;
use sojourn_lab::net::End;
use sojourn_lab::progress::{self, Outcome, ProgressRecord};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOCAL: [&str; 5] = ["pipe", "socketpair", "unix", "tcp4", "tcp6"];
const REMOTE: [&str; 2] = ["tcp4", "tcp6"];
const WAYS: [&str; 5] = ["blocking", "poll", "select", "epoll", "epollet"];
/// Ways of waiting for questions and answers.
const CONVERSES: [&str; 3] = ["blocking", "poll", "epoll"];
/// Longest time for the output of a program that has ended.
const SAID_WITHIN: Duration = Duration::from_secs(5);

/// A session with its two programs.
pub(super) struct Pair {
    pub(super) name: String,
    progress: PathBuf,
    running: Vec<Running>,
    keeps_what_was_sent: bool,
    killed: Option<usize>,
    /// Time at which both must have ended, once one was killed.
    deadline: Option<Instant>,
    /// Bytes that both had received at the last count.
    received: u64,
}

impl Pair {
    /// Starts two programs that go on until the file `end` exists.
    pub(super) fn start(
        testbed: &Testbed,
        number: usize,
        random: &mut Random,
        end: &Path,
    ) -> Result<Self> {
        let kinds: &[&str] = if testbed.is_between_hosts() { &REMOTE } else { &LOCAL };
        let kind = random.pick(kinds).unwrap_or("tcp4");
        let converses = random.percent(35);
        let way = random.pick(if converses { &CONVERSES } else { &WAYS[..] }).unwrap_or("poll");
        let size = random.within(100..=20_000).to_string();
        let seed = random.within(1..=1 << 30).to_string();
        let progress = testbed.folder().join(format!("progress{number}"));
        progress::make(&progress)?;
        crate::rights::open_folder(&progress)?;
        let (told, over) = (progress.to_string_lossy(), end.to_string_lossy());
        let mut words = vec!["--way", way, "--size", &size, "--seed", &seed, "--progress", &told];
        words.extend(if converses { &["--rounds", "1"][..] } else { &[] });
        words.extend(["--until", &over]);
        let start = |end: End, first: &[&str]| {
            let mut command = testbed.peer(end);
            command.args(first).args(&words);
            Running::start(command)
        };
        let running = match kind {
            "pipe" => vec![start(End::A, &["pair", "pipe"])?],
            "socketpair" => vec![start(End::A, &["pair", "unix"])?],
            "unix" => {
                let path = testbed.folder().join(format!("socket{number}"));
                let path = path.to_string_lossy();
                vec![
                    start(End::A, &["serve", "unix", &path])?,
                    start(End::B, &["call", "unix", &path])?,
                ]
            }
            tcp => {
                let at = testbed.tcp_address(tcp == "tcp6")?;
                vec![start(End::A, &["serve", "tcp", &at])?, start(End::B, &["call", "tcp", &at])?]
            }
        };
        let style = if converses { "questions" } else { "both ways" };
        Ok(Self {
            name: format!("{kind}, {way}, {style}, up to {size} bytes, bytes of {seed}"),
            progress,
            running,
            keeps_what_was_sent: !kind.starts_with("tcp"),
            killed: None,
            deadline: None,
            received: 0,
        })
    }

    /// Reads the progress records of both.
    pub(super) fn told(&self) -> Result<[ProgressRecord; 2]> {
        progress::read(&self.progress)
    }

    /// Returns true if both have begun, and none was killed.
    pub(super) fn is_whole(&self) -> bool {
        let told = self.told().unwrap_or_default();
        self.killed.is_none() && told.iter().all(|told| told.pid != 0 && told.received > 0)
    }

    /// Describes the pair, how far its programs are, and where they wait.
    pub(super) fn describe(&self) -> String {
        let told = self.told().unwrap_or_default();
        let waits = told.map(|told| whereabouts(told.pid));
        format!("{}: {told:?}, {waits:?}", self.name)
    }

    /// Returns the number of bytes that were checked since the last count.
    pub(super) fn new_bytes(&mut self) -> u64 {
        let now = self.told().unwrap_or_default().iter().map(|told| told.received).sum();
        now - std::mem::replace(&mut self.received, now)
    }

    /// Returns the process number of a side, if the process still runs.
    pub(super) fn pid(&self, side: usize) -> Option<u32> {
        let pid = self.told().ok()?[side].pid;
        (pid != 0 && is_there(pid)).then_some(pid)
    }

    /// Kills one side; the other has to end within `limit`.
    pub(super) fn kill(&mut self, side: usize, limit: Duration) {
        if let Some(pid) = self.pid(side) {
            self.killed = Some(side);
            self.deadline = Some(Instant::now() + limit);
            signal(pid, Signal::KILL);
        }
    }

    /// Returns true if the pair can be judged: both have ended, or the deadline has passed.
    pub(super) fn is_due(&mut self) -> bool {
        self.is_over() || self.deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    /// Returns true if a program has ended or failed although none was killed.
    pub(super) fn has_failed(&mut self) -> bool {
        self.killed.is_none() && {
            let told = self.told().unwrap_or_default();
            let is_gone = |told: &ProgressRecord| told.pid != 0 && !is_there(told.pid);
            let failed = |told: &ProgressRecord| told.outcome == Outcome::Failed;
            told.iter().any(|told| failed(told) || is_gone(told))
        }
    }

    fn is_over(&mut self) -> bool {
        let told = self.told().unwrap_or_default();
        let has_ended = |told: &ProgressRecord| told.pid != 0 && !is_there(told.pid);
        let is_running = self.running.iter_mut().any(Running::is_running);
        told.iter().all(|told| has_ended(told) || told.pid == 0 && !is_running)
    }

    /// Waits for both; returns the fate of the session.
    pub(super) fn finish(mut self, limit: Duration) -> Result<Verdict> {
        let deadline = Instant::now() + limit;
        while !self.is_over() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        let is_over = self.is_over();
        let orphan = if self.running.len() == 1 { self.pid(1) } else { None };
        let whereabouts = orphan.map(whereabouts);
        for running in std::mem::take(&mut self.running) {
            // Of a program that hangs, `finish` with no time reports where it waits.
            let limit = if is_over { SAID_WITHIN } else { Duration::ZERO };
            match running.finish(limit) {
                Ok(ended) if ended.status == -9 && self.killed.is_some() => said += &ended.err,
                Ok(ended) if ended.status < 0 => {
                    said += &format!("ended by signal {}: {}", -ended.status, ended.err);
                }
                Ok(ended) => said += &ended.err,
                Err(error) => said += &format!("{error:#}"),
            }
        }
        if let Some(pid) = orphan.filter(|_| !is_over) {
            said += &format!("its child: {}", whereabouts.unwrap_or_default());
            signal(pid, Signal::KILL);
        }
        let told = self.told().context("what the programs told")?;
        let killed = self.killed;
        let keeps_what_was_sent = self.keeps_what_was_sent;
        Ok(Ended { told, said: &said, killed, keeps_what_was_sent }.judge())
    }
}

/// Returns true if the process has not ended (zombies have).
pub(super) fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Sends a signal to a process, which may have ended meanwhile.
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn whereabouts(pid: u32) -> String {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default().trim().to_owned()
    };
    format!("{} {}", read("wchan"), read("syscall"))
}
