//! A folder, a session server and an environment of one test's own.

use crate::net::Host;
use crate::{Built, Finished, Running, unit};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As if Sojourn were not there.
    Plain,
    /// Under `sojourn run`.
    Sojourn,
}

/// One test's world. Everything in it is gone when it is dropped.
#[derive(Debug)]
pub struct Sandbox {
    built: Built,
    folder: PathBuf,
    server: Option<Running>,
    settings: Vec<(String, String)>,
    host: Option<Host>,
    network: &'static [&'static str],
}

impl Sandbox {
    /// A folder and a server.
    ///
    /// # Errors
    /// If something is not built, or the server does not come up.
    pub fn new() -> Result<Self> {
        Self::make(None, &[])
    }

    /// The same, with the server and all programs on `host`. The server carries sessions with other
    /// hosts, too; with the variable `LAB_PORTS` set as in [`Sandbox::with_ports`].
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn on(host: &Host) -> Result<Self> {
        if std::env::var_os("LAB_PORTS").is_some() {
            return Self::with_ports(host);
        }
        Self::make(Some(host.clone()), &["--network=rights"])
    }

    /// The same, with a port for every program, whatever its rights.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn with_ports(host: &Host) -> Result<Self> {
        Self::make(Some(host.clone()), &["--network=ports"])
    }

    /// As [`Sandbox::on`], with a message for each packet instead of mapped rings.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn with_messages(host: &Host) -> Result<Self> {
        Self::make(Some(host.clone()), &["--network=messages"])
    }

    /// As [`Sandbox::with_ports`], with sessions carried past the host's packet filters.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn past_firewalls(host: &Host) -> Result<Self> {
        Self::make(Some(host.clone()), &["--network=ports", "--firewall=ignore"])
    }

    fn make(host: Option<Host>, network: &'static [&'static str]) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let built = Built::find()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojourn-lab-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut sandbox = Self { built, folder, server: None, settings: Vec::new(), host, network };
        sandbox.start_server()?;
        Ok(sandbox)
    }

    /// Starts the server, or another one after the first was killed.
    ///
    /// # Errors
    /// If it does not come up within five seconds.
    pub fn start_server(&mut self) -> Result<()> {
        let mut command = Command::new(self.built.path("sojournd"));
        command.args(["--idle-exit", "600", "--system", "--address"]).arg(self.address());
        if let Some(host) = &self.host {
            host.place(&mut command);
            // A namespace of its own: nothing else is disturbed.
            command.args(self.network);
            unit::limit(&mut command);
        }
        let mut server = Running::start(command)?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.answers() {
            if !server.is_running() || Instant::now() > deadline {
                let said = server.finish(Duration::ZERO);
                bail!("the session server did not come up: {said:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.server = Some(server);
        Ok(())
    }

    /// Kills the server as a crash would.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// Asks the server to end, as a system does that goes down; what it has said.
    ///
    /// # Errors
    /// If there is none, or it does not end within ten seconds.
    pub fn stop_server(&mut self) -> Result<Finished> {
        self.end_server(rustix::process::Signal::TERM)
    }

    /// Ends the server by a signal; what it has said.
    ///
    /// # Errors
    /// If there is none, or it does not end within ten seconds.
    pub fn end_server(&mut self, signal: rustix::process::Signal) -> Result<Finished> {
        let server = self.server.take().context("no server runs")?;
        server.signal(signal);
        server.finish(Duration::from_secs(10))
    }

    /// Whether there is a server, and it has not ended by itself.
    pub fn has_server(&mut self) -> bool {
        self.server.as_mut().is_some_and(Running::is_running)
    }

    /// The server's process number.
    #[must_use]
    pub fn server_pid(&self) -> Option<u32> {
        self.server.as_ref().map(Running::pid)
    }

    fn answers(&self) -> bool {
        self.sojourn(&["stats", "--json"]).is_ok()
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> PathBuf {
        self.folder.join("server")
    }

    /// The sandbox's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is under test.
    #[must_use]
    pub fn built(&self) -> &Built {
        &self.built
    }

    /// Sets a configuration variable (without `SOJOURN_`) for programs started from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((format!("SOJOURN_{name}"), value.into()));
    }

    /// A command that runs `program` in that mode.
    #[must_use]
    pub fn command(&self, mode: Mode, program: impl AsRef<OsStr>) -> Command {
        let mut command = match mode {
            Mode::Plain => Command::new(program),
            Mode::Sojourn => {
                let mut command = Command::new(self.built.path("sojourn"));
                command.args(["run", "--"]).arg(program);
                command
            }
        };
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        command.current_dir(&self.folder).env("SOJOURN_SERVER", self.address());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        if let Some(host) = &self.host {
            host.place(command);
        }
    }

    /// Runs `sojourn` with these words; its output.
    ///
    /// # Errors
    /// If it does not succeed within ten seconds.
    pub fn sojourn(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(self.built.path("sojourn"));
        command.args(words);
        self.surround(&mut command);
        Running::start(command)?.finish(Duration::from_secs(10))?.success(&words.join(" "))
    }

    /// The server's counters, as `sojourn stats --json` gives them.
    ///
    /// # Errors
    /// As [`Sandbox::sojourn`].
    pub fn stats(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.sojourn(&["stats", "--json"])?)?)
    }

    /// The sessions, as `sojourn ss --json` gives them.
    ///
    /// # Errors
    /// As [`Sandbox::sojourn`].
    pub fn sessions(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.sojourn(&["ss", "--json"])?)?)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
