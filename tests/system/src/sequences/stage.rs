//! Where scripts are played: the program, and a sandbox with a session server.

use super::compare::{Answers, Difference, answers, difference};
use super::script::Script;
use crate::compile::compile;
use crate::harness::{Harness, Serving};
use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time of one script. The program ends earlier itself if a step hangs.
const LIMIT: Duration = Duration::from_secs(40);
const FILES: [&str; 8] =
    ["sequences", "script", "data", "descriptors", "options", "waits", "process", "extras"];

/// The way by which the program's calls come to the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// The preload library.
    #[default]
    Preload,
    /// The loader: the program is linked statically.
    Loader,
}

/// Where scripts are played, and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// By what.
    pub door: Door,
    /// There is another host, for sessions of kinds `near4` and the like.
    pub has_far_host: bool,
}

/// A program, a sandbox, and what serves its requests.
#[derive(Debug)]
pub struct Stage {
    program: PathBuf,
    serving: Serving,
    /// The link to the other host.
    link: Option<Link>,
}

impl Stage {
    /// Compiles the program into `folder`, and starts a session server.
    ///
    /// # Errors
    /// If the program does not compile, or the server does not come up.
    pub fn new(folder: &Path, terms: Terms) -> Result<Self> {
        let Terms { door, has_far_host } = terms;
        let program = folder.join(format!("sequences-{door:?}-{}", std::process::id()));
        let files = FILES.map(|file| format!("sequences/{file}.c"));
        let files = files.each_ref().map(String::as_str);
        let mut options = vec!["-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
        if door == Door::Loader {
            options.push("-static");
        }
        compile(&program, &files, &options)?;
        let link = match has_far_host {
            true => Some(Link::direct(&Host::new()?, &Host::new()?, 1500)?),
            false => None,
        };
        let mut sandbox = match &link {
            Some(link) => Sandbox::on(link.host(End::A))?,
            None => Sandbox::new()?,
        };
        sandbox.set("MOVE_AFTER_CALLS", "0");
        sandbox.set("AWAIT_MOVES", "on");
        match door {
            Door::Preload => sandbox.set("STRICT", "on"),
            Door::Loader => sandbox.set("LOAD", "on"),
        }
        Ok(Self { program, serving: Harness::start(sandbox)?, link })
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
        // The program inherits them, and connects to them from its own host.
        let listeners = self.link.as_ref().map(listeners).transpose()?;
        for (name, listener) in
            ["SEQUENCES_FAR4", "SEQUENCES_FAR6"].iter().zip(listeners.iter().flatten())
        {
            command.env(name, listener.as_raw_fd().to_string());
        }
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

/// Listens on the other host. Programs that are started meanwhile inherit the listeners.
fn listeners(link: &Link) -> Result<[TcpListener; 2]> {
    let addresses: [IpAddr; 2] = [link.v4(End::B).into(), link.v6(End::B).into()];
    let listen = || addresses.map(|address| TcpListener::bind((address, 0)));
    let [v4, v6] = link.host(End::B).enter(listen)?;
    let listeners = [v4?, v6?];
    for listener in &listeners {
        fcntl_setfd(listener, FdFlags::empty())?;
    }
    Ok(listeners)
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}
