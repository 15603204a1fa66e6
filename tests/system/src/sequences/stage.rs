//! Where scripts are played: the program, and a sandbox with a session server.

use super::compare::{Answers, Difference, answers, difference};
use super::script::Script;
use crate::compile::compile;
use crate::harness::{Harness, Serving};
use anyhow::{Context, Result, bail};
use sojourn_lab::{Mode, Running, Sandbox};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time of one script. The program ends earlier itself if a step hangs.
const LIMIT: Duration = Duration::from_secs(40);
const FILES: [&str; 8] =
    ["sequences", "script", "data", "descriptors", "options", "waits", "process", "extras"];

/// A program, a sandbox, and what serves its requests.
#[derive(Debug)]
pub struct Stage {
    program: PathBuf,
    serving: Serving,
}

impl Stage {
    /// Compiles the program into `folder`, and starts a session server.
    ///
    /// # Errors
    /// If the program does not compile, or the server does not come up.
    pub fn new(folder: &Path) -> Result<Self> {
        let program = folder.join(format!("sequences-{}", std::process::id()));
        let files = FILES.map(|file| format!("sequences/{file}.c"));
        let files = files.each_ref().map(String::as_str);
        compile(&program, &files, &["-g", "-Wall", "-Wextra", "-Werror", "-pthread"])?;
        let mut sandbox = Sandbox::new()?;
        sandbox.set("MOVE_AFTER_CALLS", "0");
        sandbox.set("AWAIT_MOVES", "on");
        sandbox.set("STRICT", "on");
        Ok(Self { program, serving: Harness::start(sandbox)? })
    }

    /// Plays a script once.
    ///
    /// # Errors
    /// If the program cannot be run, or does not end.
    pub fn play(&self, script: &Script, mode: Mode) -> Result<Answers> {
        let mut command = {
            let sandbox = self.serving.sandbox();
            let folder = sandbox.folder();
            std::fs::write(folder.join("script"), script.to_string())?;
            let _ = std::fs::remove_file(folder.join("out"));
            let mut command = sandbox.command(mode, &self.program);
            if mode == Mode::Sojourn {
                command.env("SEQUENCES_HARNESS", folder.join("harness"));
            }
            command
        };
        command.args(["script", "out"]);
        let finished = match Running::start(command)?.finish(LIMIT) {
            Err(error) if mode == Mode::Sojourn => {
                return Ok(answers(&format!("{error:#}"), script.steps.len()));
            }
            finished => finished?,
        };
        let text = match finished.status {
            0 => finished.out,
            other if mode == Mode::Plain => {
                bail!("plainly: status {other} {} {}\n{script}", finished.out, finished.err)
            }
            other => format!("{}\nstatus {other} {}", finished.out, finished.err),
        };
        Ok(answers(&text, script.steps.len()))
    }

    /// Plays a script plainly and under Sojourn, and plainly once more if the answers differ.
    ///
    /// # Errors
    /// As [`Stage::play`].
    pub fn compare(&self, script: &Script) -> Result<Option<Difference>> {
        let first = self.play(script, Mode::Plain)?;
        let under = self.play(script, Mode::Sojourn)?;
        if difference(&script.steps, [&first, &first], &under).is_none() {
            return Ok(None);
        }
        let second = self.play(script, Mode::Plain)?;
        Ok(difference(&script.steps, [&first, &second], &under))
    }

    /// Returns the difference if the script differs at least `least` times in `rounds`.
    ///
    /// # Errors
    /// As [`Stage::play`].
    pub fn differs(&self, script: &Script, least: u32, rounds: u32) -> Result<Option<Difference>> {
        let mut found = 0;
        for _ in 0..rounds {
            let Some(difference) = self.compare(script)? else { continue };
            found += 1;
            if found >= least {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }

    /// Returns how many streams the server has made.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn moves(&self) -> Result<u64> {
        let sandbox = self.serving.sandbox();
        Ok(crate::Admin::new(&sandbox).context("the server has ended")?.moves()?.joins)
    }

    /// Returns what the server says of the sessions that have not moved.
    #[must_use]
    pub fn why(&self) -> String {
        let said = self.serving.sandbox().sojourn(&["stats"]);
        said.unwrap_or_else(|error| format!("{error:#}"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}
