//! The search for this user's session server, and the start of one if none answers.
//!
//! The search costs one connection attempt, because `run` makes it each time. A server that is
//! started must not be a child of the program that `run` executes, which would not expect it. So
//! `run` has `sojourn server start` start the server; that process ends when the server is ready.
//! Not here: calls to the server (`client`).

use crate::beside;
use crate::created::create_log;
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Uid;
use rustix::time::Timespec;
use sojourn_ipc::Address;
use sojourn_session::place::Surroundings;
use sojourn_session::trust::{self, ConnectError};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The time in which a started server has to serve. It may have to wait for another server that is
/// just ending.
const READY_WITHIN: Duration = Duration::from_secs(8);

/// The reason why no server can be asked at an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Silent {
    /// No process listens there.
    #[error("no session server answers at {0}")]
    Nobody(String),
    /// This user may not connect.
    #[error("{0}: permission denied")]
    Permission(String),
    /// A process of an untrusted user listens there.
    #[error("{0} is served by user {1}, who is neither root nor you: it is not used")]
    Foreign(String, Uid),
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] sojourn_ipc::AddressError),
    /// The kernel refused the connection.
    #[error("{0}: {1}")]
    System(String, Errno),
}

impl Silent {
    /// Returns advice for the user. `is_named`: the address comes from a flag or the configuration.
    pub(crate) fn advice(&self, is_named: bool) -> &'static str {
        match (self, is_named) {
            (Self::Nobody(_), false) => "start one: sojourn server start",
            (Self::Nobody(_), true) => {
                "start one there, or leave `server` empty for the usual places"
            }
            _ => "leave `server` empty for the usual places",
        }
    }
}

/// Checks that a server that this user can trust listens at `address`.
pub(crate) fn answers(address: &str) -> Result<(), Silent> {
    answers_to(address, rustix::process::geteuid())
}

/// Checks that a server that `user` can trust (`trust`) listens at `address`.
pub(crate) fn answers_to(address: &str, user: Uid) -> Result<(), Silent> {
    match connect(address, user, None) {
        // The listener's queue is full: a server listens, and is busy.
        Err(Silent::System(_, Errno::AGAIN)) => Ok(()),
        connected => connected.map(drop),
    }
}

/// Connects to the server at `address` by [`trust::connect`].
pub(crate) fn connect(
    address: &str,
    user: Uid,
    within: Option<Duration>,
) -> Result<OwnedFd, Silent> {
    trust::connect(address, user, within).map_err(|error| match error {
        ConnectError::Address(error) => Silent::Address(error),
        ConnectError::Foreign(listener) => Silent::Foreign(address.into(), listener),
        ConnectError::System(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => {
            Silent::Nobody(address.into())
        }
        ConnectError::System(Errno::ACCESS) => Silent::Permission(address.into()),
        ConnectError::System(error) => Silent::System(address.into(), error),
    })
}

/// Ensures that a server answers. `configured` is the setting `server`, empty for the default
/// addresses. Returns an address if programs must be told one because their own search would not
/// find this server.
pub(crate) fn ensure(configured: &str, idle_exit_s: u32) -> Result<Option<String>> {
    let around = Surroundings::of_this_process(configured);
    let usual = around.for_client()?;
    let silent = match answers(&usual) {
        Ok(()) => return Ok(None),
        Err(silent) => silent,
    };
    if around.server.is_some() {
        bail!("{silent}; {}", silent.advice(true));
    }
    let own = around.own().to_string_lossy().into_owned();
    if answers(&own).is_err() {
        start_apart(idle_exit_s)?;
        answers(&own).context("a session server was started, but does not answer")?;
    }
    // The system's server may have left its socket behind: programs then must be told this user's
    // own address.
    Ok((own != usual).then_some(own))
}

/// Has another process start the server, so that the server is no child of this process.
fn start_apart(idle_exit_s: u32) -> Result<()> {
    let program = std::env::current_exe().context("our own program cannot be found")?;
    let mut starter = Command::new(program)
        .args(["server", "start", "--idle-exit", &idle_exit_s.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("no session server can be started")?;
    let mut said = String::new();
    if let Some(mut stderr) = starter.stderr.take() {
        // The pipe ends with the starter, which has a deadline and passes the pipe on to no other
        // process.
        let _ = stderr.read_to_string(&mut said);
    }
    // If the caller ignores SIGCHLD the kernel keeps no exit status: then silence on standard error
    // counts as success.
    let is_fine = starter.wait().map_or(said.is_empty(), |status| status.success());
    if !is_fine {
        let said = said.trim().trim_start_matches("sojourn: ");
        bail!("no session server can be started: {said}");
    }
    Ok(())
}

/// Starts a server at `named`, or at this user's own address if that is empty, as a daemon. Waits
/// until the server serves, and returns its address.
pub(crate) fn start(named: &str, idle_exit_s: Option<u32>) -> Result<String> {
    let program = beside::server()?;
    let address = match Address::parse(named) {
        _ if named.is_empty() => None,
        Ok(Address::Path(path)) => Some(std::path::absolute(path)?),
        Ok(_) => Some(PathBuf::from(named)),
        Err(error) => return Err(error).with_context(|| format!("{named}: is no address")),
    };
    let log = match address.as_ref().filter(|address| address.is_absolute()) {
        Some(path) => {
            let mut log = path.clone().into_os_string();
            log.push(".log");
            PathBuf::from(log)
        }
        None => {
            let around = Surroundings::of_this_process("");
            let own = around.prepare_own().context("the server has no place")?;
            own.with_file_name("server.log")
        }
    };
    let mut server = spawn(&program, address.as_deref(), &log, idle_exit_s)?;
    let stdout = server.stdout.take().context("the server has no standard output")?;
    match await_ready(stdout) {
        Ready::Serves(address) => Ok(address),
        Ready::Ended => {
            let status = server.wait().map_or(String::new(), |status| format!(" ({status})"));
            Err(anyhow!("{} ended at once{status}: {}", program.display(), tail(&log)))
        }
        Ready::Late => {
            let _ = server.kill();
            let _ = server.wait();
            let seconds = READY_WITHIN.as_secs();
            Err(anyhow!("{} did not serve within {seconds} s: {}", program.display(), tail(&log)))
        }
    }
}

fn spawn(
    program: &Path,
    address: Option<&Path>,
    log: &Path,
    idle_exit_s: Option<u32>,
) -> Result<Child> {
    let errors = create_log(log).with_context(|| {
        format!("{}: cannot be written; name a folder that is there and yours", log.display())
    })?;
    let mut command = Command::new(program);
    match address {
        Some(address) => command.arg("--address").arg(address),
        None => command.arg("--user"),
    };
    command.current_dir("/").env_remove("LD_PRELOAD");
    if let Some(seconds) = idle_exit_s {
        command.args(["--idle-exit", &seconds.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    // SAFETY: both calls are plain system calls, which are allowed between fork and exec; they
    // touch no memory of this process.
    unsafe {
        command.pre_exec(|| {
            // A session of its own protects the server from the terminal's signals.
            let _ = rustix::process::setsid();
            // The server must not keep the caller's open descriptors (locks, pipes).
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    command.spawn().with_context(|| format!("{}: cannot be run", program.display()))
}

enum Ready {
    Serves(String),
    Ended,
    Late,
}

/// Waits for the line `ready ADDRESS`.
fn await_ready(mut stdout: ChildStdout) -> Ready {
    let deadline = Instant::now() + READY_WITHIN;
    let mut said = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut set = [PollFd::new(&stdout, PollFlags::IN)];
        match poll(&mut set, Some(&timeout)) {
            Ok(0) => return Ready::Late,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return Ready::Ended,
        }
        let mut bytes = [0; 512];
        match stdout.read(&mut bytes) {
            Ok(0) | Err(_) => return Ready::Ended,
            Ok(len) => said.extend_from_slice(&bytes[..len]),
        }
        let text = String::from_utf8_lossy(&said);
        let line = text.split_inclusive('\n').find(|line| line.ends_with('\n'));
        if let Some(address) = line.and_then(|line| line.strip_prefix("ready ")) {
            return Ready::Serves(address.trim_end().to_owned());
        }
    }
}

/// Returns the last lines of the server's log.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(3).collect();
    match lines.is_empty() {
        true => format!("it said nothing (in {})", log.display()),
        false => lines.into_iter().rev().collect::<Vec<_>>().join("; "),
    }
}

/// Returns the path of the log of a server that this command starts.
pub(crate) fn log_of(address: &str) -> Option<PathBuf> {
    let named = PathBuf::from(format!("{address}.log"));
    let usual = Path::new(address).with_file_name("server.log");
    [named, usual].into_iter().find(|log| log.is_absolute() && log.is_file())
}
