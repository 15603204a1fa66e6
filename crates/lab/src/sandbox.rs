//! A folder, a session server and an environment for one test.

use crate::net::Host;
use crate::{Built, Finished, Running, unit};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The way in which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Without Sojourn.
    Plain,
    /// Under `sojourn run`.
    Sojourn,
}

/// The environment of one test. Drop ends its server and removes its folder.
#[derive(Debug)]
pub struct Sandbox {
    built: Built,
    folder: PathBuf,
    server: Option<Running>,
    /// Variables of the environment.
    settings: BTreeMap<String, String>,
    host: Option<Host>,
    network: &'static [&'static str],
    /// True if the server serves all users.
    is_public: bool,
    /// The server is started as its unit starts it.
    is_unit: bool,
    /// Further words of the server's command line.
    words: &'static [&'static str],
}

impl Sandbox {
    /// Makes a folder and starts a server.
    ///
    /// # Errors
    /// If a program is not built, or the server does not come up.
    pub fn new() -> Result<Self> {
        Self::make(None, &[])
    }

    /// Makes a sandbox whose server and programs are on `host`. The server also carries sessions
    /// with other hosts. If the variable `LAB_PORTS` is set, the sandbox is that of
    /// [`Sandbox::with_ports`], and if `LAB_XDP` is set, that of [`Sandbox::with_xdp`].
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn on(host: &Host) -> Result<Self> {
        if std::env::var_os("LAB_PORTS").is_some() {
            return Self::with_ports(host);
        }
        if std::env::var_os("LAB_XDP").is_some() {
            return Self::with_xdp(host, false);
        }
        Self::make(Some(host.clone()), &["--network=rights"])
    }

    /// Makes a sandbox on `host` in which every program gets a port, whatever its rights, and if
    /// the variable `LAB_XDP` is set an AF_XDP socket with it.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn with_ports(host: &Host) -> Result<Self> {
        if std::env::var_os("LAB_XDP").is_some() {
            return Self::with_xdp(host, true);
        }
        Self::make(Some(host.clone()), &["--network=ports"])
    }

    /// Makes a sandbox on `host` whose packet sockets take a message for each packet instead of
    /// mapped rings.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn with_messages(host: &Host) -> Result<Self> {
        Self::make(Some(host.clone()), &["--network=messages"])
    }

    /// Makes a sandbox on `host` whose programs send short frames by AF_XDP sockets: on the
    /// interface itself, or each through its port.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn with_xdp(host: &Host, by_port: bool) -> Result<Self> {
        let words: &[&str] =
            if by_port { &["--network=ports", "--xdp"] } else { &["--network=rights", "--xdp"] };
        Self::make(Some(host.clone()), words)
    }

    /// Makes a sandbox on `host` whose packet sockets are a driver's, with each frame in a message
    /// or, if `by_memory`, in memory of its own. Its server is for its own user.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn with_driver(host: &Host, by_memory: bool) -> Result<Self> {
        let words = if by_memory { &["--network=driver-memory"] } else { &["--network=driver"] };
        Self::make(Some(host.clone()), words)
    }

    /// Makes a sandbox as [`Sandbox::with_ports`] does, whose server carries sessions past the
    /// host's packet filters.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn past_firewalls(host: &Host) -> Result<Self> {
        Self::make(Some(host.clone()), &["--network=ports", "--firewall=ignore"])
    }

    /// As [`Sandbox::with_ports`], with the server as its unit starts it: its user, its
    /// capabilities, its system calls.
    ///
    /// # Errors
    /// As [`Sandbox::new`], and where [`unit::become_unit`] is not possible.
    pub fn as_unit(host: &Host) -> Result<Self> {
        Self::make_as(true, Some(host.clone()), &["--network=ports"])
    }

    fn make(host: Option<Host>, network: &'static [&'static str]) -> Result<Self> {
        Self::make_as(false, host, network)
    }

    fn make_as(
        is_unit: bool,
        host: Option<Host>,
        network: &'static [&'static str],
    ) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let built = Built::find()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojourn-lab-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let settings = BTreeMap::new();
        // Everybody's server has no driver.
        let is_public = !network.iter().any(|word| word.starts_with("--network=driver"));
        let mut sandbox = Self {
            built,
            folder,
            server: None,
            settings,
            host,
            network,
            is_public,
            is_unit,
            words: &[],
        };
        if is_unit {
            // Libraries trust another user's server in a folder that root has given to it.
            std::os::unix::fs::chown(&sandbox.folder, None, Some(unit::USER))?;
            std::fs::set_permissions(&sandbox.folder, PermissionsExt::from_mode(0o1775))?;
        }
        sandbox.start_server()?;
        Ok(sandbox)
    }

    /// Starts the server, or another one after the first was killed.
    ///
    /// # Errors
    /// If the server does not come up within twenty seconds.
    pub fn start_server(&mut self) -> Result<()> {
        let mut command = Command::new(self.built.path("sojournd"));
        command.args(["--idle-exit", "600", "--address"]).arg(self.address());
        command.args(self.is_public.then_some("--system")).args(self.words);
        if let Some(host) = &self.host {
            host.place(&mut command);
            // The options for networks are only for a host of the test's own, where they disturb
            // nothing else.
            command.args(self.network);
            unit::limit(&mut command, self.network.contains(&"--xdp"));
        }
        if self.is_unit && !unit::become_unit(&mut command) {
            bail!("the server cannot be started as its unit does");
        }
        let mut server = Running::start(command)?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.answers() {
            if !server.is_running() || Instant::now() > deadline {
                let output = server.finish(Duration::ZERO);
                bail!("the session server did not come up: {output:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.server = Some(server);
        Ok(())
    }

    /// Makes servers that are started from now on serve only the programs of their own user.
    pub fn serve_own_user(&mut self) {
        self.is_public = false;
    }

    /// Starts a server that serves only the programs of its own user, in place of the present one.
    ///
    /// # Errors
    /// As [`Sandbox::start_server`].
    pub fn restart_for_own_user(&mut self) -> Result<()> {
        self.serve_own_user();
        self.kill_server();
        self.start_server()
    }

    /// Starts a server with these further words on its command line, in place of the present one.
    ///
    /// # Errors
    /// As [`Sandbox::start_server`].
    pub fn restart_with(&mut self, words: &'static [&'static str]) -> Result<()> {
        self.words = words;
        self.kill_server();
        self.start_server()
    }

    /// Kills the server, as a crash would.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// Asks the server to end, as a system that shuts down does; returns its output.
    ///
    /// # Errors
    /// If no server runs, or it does not end within ten seconds.
    pub fn stop_server(&mut self) -> Result<Finished> {
        self.end_server(rustix::process::Signal::TERM)
    }

    /// Ends the server by a signal; returns its output.
    ///
    /// # Errors
    /// If no server runs, or it does not end within ten seconds.
    pub fn end_server(&mut self, signal: rustix::process::Signal) -> Result<Finished> {
        let server = self.server.take().context("no server runs")?;
        server.signal(signal);
        server.finish(Duration::from_secs(10))
    }

    /// Returns true if a server runs and has not ended by itself.
    pub fn has_server(&mut self) -> bool {
        self.server.as_mut().is_some_and(Running::is_running)
    }

    /// Returns the server's process number.
    #[must_use]
    pub fn server_pid(&self) -> Option<u32> {
        self.server.as_ref().map(Running::pid)
    }

    /// The numbers of the processes that the server consists of and of those that it has started,
    /// its own first.
    #[must_use]
    pub fn server_pids(&self) -> Vec<u32> {
        self.server_pid().into_iter().flat_map(|pid| [vec![pid], children(pid)].concat()).collect()
    }

    /// The process of the server's with that part of its work: front, prober or carrier.
    #[must_use]
    pub fn server_part(&self, part: &str) -> Option<u32> {
        let is_it = |pid: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == format!("sojourn-{part}")
        };
        self.server_pids().into_iter().find(is_it)
    }

    fn answers(&self) -> bool {
        match self.is_unit {
            false => self.sojourn(&["stats", "--json"]).is_ok(),
            // The command trusts another user's server at the system's place only.
            true => self.listens().is_ok(),
        }
    }

    fn listens(&self) -> Result<()> {
        let kind = rustix::net::SocketType::SEQPACKET;
        let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None)?;
        let address = rustix::net::SocketAddrUnix::new(self.address())?;
        Ok(rustix::net::connect(&socket, &address)?)
    }

    /// Returns the server's address.
    #[must_use]
    pub fn address(&self) -> PathBuf {
        self.folder.join("server")
    }

    /// Returns the sandbox's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the build under test.
    #[must_use]
    pub fn built(&self) -> &Built {
        &self.built
    }

    /// Returns the host on which programs run; `None` is the machine's own network.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Sets a configuration variable (without the prefix `SOJOURN_`) for programs started from now
    /// on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.insert(format!("SOJOURN_{name}"), value.into());
    }

    /// Returns a command that runs `program` in `mode`.
    #[must_use]
    pub fn command(&self, mode: Mode, program: impl AsRef<OsStr>) -> Command {
        let mut command = match mode {
            Mode::Plain => Command::new(program),
            // `sojourn run` trusts another user's server at the system's place only.
            Mode::Sojourn if self.is_unit => {
                let mut command = Command::new(program);
                command.env("LD_PRELOAD", self.built.path("libsojourn_preload.so"));
                command
            }
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
        // What the loader keeps is not the developer's.
        command.env("XDG_CACHE_HOME", self.folder.join("caches"));
        command.envs(&self.settings);
        if let Some(host) = &self.host {
            host.place(command);
        }
    }

    /// Runs `sojourn` with the arguments `words`; returns its output.
    ///
    /// # Errors
    /// If the command does not succeed within ten seconds.
    pub fn sojourn(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(self.built.path("sojourn"));
        command.args(words);
        self.surround(&mut command);
        Running::start(command)?.finish(Duration::from_secs(10))?.success(&words.join(" "))
    }

    /// Returns the server's counters, as `sojourn stats --json` prints them.
    ///
    /// # Errors
    /// As [`Sandbox::sojourn`].
    pub fn stats(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.sojourn(&["stats", "--json"])?)?)
    }

    /// Returns the sessions, as `sojourn ss --json` prints them.
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

/// The children of a process, of all of its threads.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    };
    tasks.flat_map(of_task).collect()
}
