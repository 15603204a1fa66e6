//! The environment of one run: folder, control groups, session server, the sockmap programs, and
//! the start of programs in each way.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use sojourn_lab::{Built, Mode, Running, Sandbox};

use super::groups::Groups;
use super::process;
use super::server::Admin;
use super::sockmap::Sockmap;
use super::way::RunMode;

/// Longest time of a program that does one turn.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// A server that listens.
pub(crate) struct Listening {
    pub(crate) address: String,
    pub(crate) server: Running,
}

/// What is to be removed after a run.
pub(crate) struct Leftovers {
    pub(crate) folders: Vec<PathBuf>,
    /// The control group that contains all others.
    pub(crate) group: Option<PathBuf>,
}

/// The environment of a run. Drop removes everything in it, in the order of the fields.
pub(crate) struct World {
    sandbox: Option<Sandbox>,
    _sockmap: Option<Sockmap>,
    groups: Option<Groups>,
    folder: Folder,
    lab: PathBuf,
    ways: Vec<RunMode>,
    /// The reasons for parts of the environment that could not be made.
    pub(crate) notes: Vec<String>,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl World {
    /// Makes the parts that this machine allows; the notes name the others.
    pub(crate) fn new(wanted: &[RunMode]) -> Result<Self> {
        let built = Built::without_check()?;
        if !built.has("lab-bench") {
            bail!(
                "{}: not built; run `cargo xtask build` first",
                built.path("lab-bench").display()
            );
        }
        let folder = std::env::temp_dir().join(format!("sojourn-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = Folder(folder);
        let mut notes = Vec::new();
        let groups = or_note(&mut notes, "no control groups, so no processor time", Groups::new());
        let mut ways = vec![RunMode::Plain];
        let is_wanted = |way| wanted.is_empty() || wanted.contains(&way);
        let mut sockmap = None;
        if is_wanted(RunMode::Sockmap) {
            let made = match &groups {
                Some(groups) => Sockmap::new(&folder.0, &groups.of(RunMode::Sockmap)),
                None => Err(anyhow::anyhow!("needs a control group of its own")),
            };
            sockmap = or_note(&mut notes, "no sockmap", made);
        }
        let mut sandbox = None;
        if is_wanted(RunMode::Sojourn) || is_wanted(RunMode::Asleep) {
            sandbox = or_note(&mut notes, "no Sojourn", open_sandbox());
        }
        let ours = [RunMode::Sojourn, RunMode::Asleep].into_iter().filter(|_| sandbox.is_some());
        ways.extend(
            sockmap.iter().map(|_| RunMode::Sockmap).chain(ours).filter(|&way| is_wanted(way)),
        );
        if let (Some(groups), Some(sandbox)) = (&groups, &sandbox) {
            let mut pids = sandbox.server_pids().into_iter();
            pids.try_for_each(|pid| groups.take(RunMode::Sojourn, pid))?;
        }
        let lab = built.path("lab-bench");
        let world = Self { sandbox, _sockmap: sockmap, groups, folder, lab, ways, notes };
        Ok(world)
    }

    /// Returns true if programs can be run in `way`.
    pub(crate) fn has(&self, way: RunMode) -> bool {
        self.ways.contains(&way)
    }

    /// Returns what is to be removed if this process is interrupted.
    pub(crate) fn leftovers(&self) -> Leftovers {
        let sandbox = self.sandbox.iter().map(|sandbox| sandbox.folder().to_owned());
        let folders = sandbox.chain([self.folder.0.clone()]).collect();
        Leftovers { folders, group: self.groups.as_ref().map(|groups| groups.top().to_owned()) }
    }

    /// Returns the folder `name` of `way`, and makes it if necessary.
    pub(crate) fn folder(&self, name: &str, way: RunMode) -> Result<PathBuf> {
        let folder = self.folder.0.join(format!("{name}-{}", way.title()));
        // Parent folders are not made: they are missing only while an interrupted run is being
        // cleaned up, and have to stay so.
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("cannot make {}", folder.display()))?,
        }
        Ok(folder)
    }

    /// Returns the folder of the run.
    pub(crate) fn top(&self) -> &Path {
        &self.folder.0
    }

    /// Returns a command that runs `program` in `way`, in the run's folder, and dies with this
    /// process.
    pub(crate) fn command(&self, way: RunMode, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.sandbox {
            Some(sandbox) if way.is_ours() => sandbox.command(Mode::Sojourn, program),
            _ => Command::new(program),
        };
        if way.is_ours() {
            // A program that cannot be accelerated has to fail, because its figure would pass for
            // Sojourn's.
            command.env("SOJOURN_STRICT", "on");
        }
        if way == RunMode::Asleep {
            command.env("SOJOURN_SPIN", "never");
        }
        // The user's own settings, of Sojourn and of the programs, must not change the results.
        command
            .current_dir(&self.folder.0)
            .env("HOME", &self.folder.0)
            .env_remove("XDG_CONFIG_HOME");
        let procs = self.groups.as_ref().map(|groups| groups.of(way).join("cgroup.procs"));
        process::prepare_child(&mut command, procs.as_deref());
        command
    }

    /// Returns a command that runs `lab-bench`, the program of ordinary calls that measures itself.
    pub(crate) fn lab(&self, way: RunMode, words: &[&str]) -> Command {
        let mut command = self.command(way, &self.lab);
        command.args(words);
        command
    }

    /// Starts `lab-bench` as a server, with the arguments `words`.
    pub(crate) fn lab_server(&self, way: RunMode, words: &[&str]) -> Result<Running> {
        Running::start(self.lab(way, words))
    }

    /// Starts `lab-bench` as the server that `word` names, and waits until it listens.
    pub(crate) fn lab_service(&self, way: RunMode, word: &str) -> Result<Listening> {
        let port = free_port("127.0.0.1")?;
        let address = format!("127.0.0.1:{port}");
        let mut server = self.lab_server(way, &[word, &address])?;
        wait_until(&mut server, || listens("127.0.0.1", port))?;
        Ok(Listening { address, server })
    }

    /// Runs `lab-bench` to its end; returns its results.
    pub(crate) fn lab_result(&self, way: RunMode, words: &[&str]) -> Result<Value> {
        lab_result(self.lab(way, words))
    }

    /// Returns the processor time of all processes of `way` so far.
    pub(crate) fn cpu_ns(&self, way: RunMode) -> Option<f64> {
        self.groups.as_ref()?.cpu_ns(way)
    }

    /// Connects to the session server's administration interface.
    pub(crate) fn admin(&self) -> Option<Admin> {
        Admin::new(&self.sandbox.as_ref()?.address()).ok()
    }

    /// Returns the process numbers of the session server's processes.
    pub(crate) fn server_pids(&self) -> Vec<u32> {
        self.sandbox.as_ref().map(Sandbox::server_pids).unwrap_or_default()
    }
}

/// Makes a sandbox whose server other users reach too, because PostgreSQL runs as one.
fn open_sandbox() -> Result<Sandbox> {
    let sandbox = Sandbox::new()?;
    if process::is_root() {
        std::fs::set_permissions(sandbox.address(), std::fs::Permissions::from_mode(0o666))?;
    }
    Ok(sandbox)
}

fn or_note<T>(notes: &mut Vec<String>, what: &str, result: Result<T>) -> Option<T> {
    result.map_err(|error| notes.push(format!("{what}: {error:#}"))).ok()
}

/// Runs a command that must succeed; returns its standard output.
pub(crate) fn run(command: Command) -> Result<String> {
    let name = format!("{command:?}");
    Running::start(command)?.finish(LIMIT)?.success(&name)
}

/// Runs a command of `lab-bench` to its end; returns its results.
pub(crate) fn lab_result(command: Command) -> Result<Value> {
    let text = run(command)?;
    serde_json::from_str(&text).with_context(|| format!("lab-bench said {text}"))
}

/// Returns a port of `address` on which nothing listens.
pub(crate) fn free_port(address: &str) -> Result<u16> {
    let listener = TcpListener::bind((address, 0)).with_context(|| address.to_owned())?;
    Ok(listener.local_addr()?.port())
}

/// Waits at most ten seconds until `is_up` returns true; fails at once if the server has ended.
pub(crate) fn wait_until(server: &mut Running, is_up: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_up() {
        if !server.is_running() || Instant::now() > deadline {
            bail!("process {} did not begin to serve", server.pid());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns true if a TCP connection to the port succeeds.
pub(crate) fn listens(address: &str, port: u16) -> bool {
    std::net::TcpStream::connect((address, port)).is_ok()
}
