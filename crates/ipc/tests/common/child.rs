//! Child processes of a test: the test binary itself, run again with one test that plays a role.
//!
//! A child lives until its standard input ends, so it cannot outlive the test that started it.

use super::service;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "SOJOURN_TEST_ROLE";

/// A running child, killed and reaped on drop.
pub struct Process {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a child in `role`, with words that the role knows.
    pub fn start(role: &str, words: &[&str]) -> Self {
        Self::start_with(role, words, |_| {})
    }

    pub fn start_with(role: &str, words: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_entry", "--nocapture", "--test-threads=1"])
            .env(ROLE, [&[role], words].concat().join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// Waits for the child to say `word` ([`say`]); answers what else it said on that line. `None`
    /// if it ended without.
    pub fn hear(&mut self, word: &str) -> Option<String> {
        let mark = format!("@{word} ");
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The harness writes its own words before ours on the same line.
            if let Some(at) = line.find(&mark) {
                return Some(line[at + mark.len()..].trim().to_owned());
            }
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops the child, every thread of it.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.unwrap().path().join("stat"));
            text.is_ok_and(|text| text.rsplit(')').next().unwrap().trim_start().starts_with('T'))
        };
        let tasks = format!("/proc/{}/task", self.pid());
        super::until("it has stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Lets the child end by itself; answers whether it ended well.
    pub fn end(&mut self) -> bool {
        drop(self.input.take());
        let mut rest = vec![];
        let _ = self.output.read_to_end(&mut rest);
        self.child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells the parent something.
pub fn say(word: &str, rest: impl std::fmt::Display) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "\n@{word} {rest}");
    let _ = output.flush();
}

/// Blocks until the parent has gone or wants us to end.
pub fn wait_for_parent() {
    let _ = std::io::stdin().read(&mut [0]);
}

/// What a child does, given its words.
pub type Role = fn(&[&str]);

/// What the test `child_entry` of each test file does: nothing, unless this is a child.
pub fn entry(roles: &[(&str, Role)]) {
    let Ok(text) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    if words[0] == "serve" {
        return service::serve_as_child(&words[1..]);
    }
    let role = roles.iter().find(|(name, _)| *name == words[0]);
    role.unwrap_or_else(|| panic!("no role {}", words[0])).1(&words[1..]);
}
