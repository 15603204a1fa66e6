//! Finding this user's session server, and starting one if none answers.
//!
//! Looking costs a connection attempt and nothing more, for `run` does it each time. A server that
//! is started is nobody's child: `run` becomes another program, which must not find a child that it
//! does not know. So `run` has `sojourn server start` do it, which ends when the server is ready.
//! Not here: asking the server (`client`).

use crate::beside;
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::time::Timespec;
use sojourn_ipc::Address;
use sojourn_session::place::{self, Surroundings};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it serves. It may have to wait for another one that is just
/// ending.
const READY_WITHIN: Duration = Duration::from_secs(8);

/// Why nobody can be asked at an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Silent {
    /// Nobody listens there.
    #[error("no session server answers at {0}")]
    Nobody(String),
    /// We may not.
    #[error("{0}: permission denied")]
    Permission(String),
    /// Another user's.
    #[error("{0} is served by user {1}, who is neither root nor you: it is not used")]
    Foreign(String, u32),
    /// No address at all.
    #[error(transparent)]
    Address(#[from] sojourn_ipc::AddressError),
    /// The kernel refused.
    #[error("{0}: {1}")]
    System(String, Errno),
}

impl Silent {
    /// What to do. `is_named`: the address comes from a flag or the configuration.
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

/// Whether a server that can be trusted listens at `address`.
pub(crate) fn answers(address: &str) -> Result<(), Silent> {
    answers_to(address, rustix::process::geteuid().as_raw())
}

/// Whether one listens there that `user` can trust.
pub(crate) fn answers_to(address: &str, user: u32) -> Result<(), Silent> {
    let silent = |error| match error {
        Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => Silent::Nobody(address.into()),
        Errno::ACCESS => Silent::Permission(address.into()),
        error => Silent::System(address.into(), error),
    };
    let Some(name) = Address::parse(address)?.socket_address() else {
        return Err(Silent::Nobody(address.into()));
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(silent)?;
    match rustix::net::connect(&socket, &name) {
        Ok(()) => {}
        // A full queue: it listens, and is busy.
        Err(Errno::AGAIN) => return Ok(()),
        Err(error) => return Err(silent(error)),
    }
    let owner = sojourn_ipc::peer(socket.as_fd()).map_err(silent)?.uid;
    match owner == 0 || owner == user || place::is_systems(address) {
        true => Ok(()),
        false => Err(Silent::Foreign(address.into(), owner)),
    }
}

/// Sees to it that a server answers. `configured` is the setting `server`, empty for the usual
/// places. If programs would look elsewhere by themselves, answers the address they must be told.
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
    Ok((own != usual).then_some(own))
}

/// Has another process start the server, so that it is no child of ours.
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
        // Ends with the starter, which has a deadline and gives this pipe to nobody.
        let _ = stderr.read_to_string(&mut said);
    }
    // If the caller ignores SIGCHLD there is no status; what was said must do then.
    let is_fine = starter.wait().map_or(said.is_empty(), |status| status.success());
    if !is_fine {
        let said = said.trim().trim_start_matches("sojourn: ");
        bail!("no session server can be started: {said}");
    }
    Ok(())
}

/// Starts a server at `named`, empty for this user's place, as a daemon of its own; ends when it
/// serves. Answers its address.
pub(crate) fn start(named: &str, idle_exit_s: Option<u32>) -> Result<String> {
    let program = beside::server()?;
    let place = match Address::parse(named) {
        _ if named.is_empty() => None,
        Ok(Address::Path(path)) => Some(std::path::absolute(path)?),
        Ok(_) => Some(PathBuf::from(named)),
        Err(error) => return Err(error).with_context(|| format!("{named}: is no address")),
    };
    let log = match place.as_ref().filter(|place| place.is_absolute()) {
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
    let mut server = spawn(&program, place.as_deref(), &log, idle_exit_s)?;
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
    place: Option<&Path>,
    log: &Path,
    idle_exit_s: Option<u32>,
) -> Result<Child> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::TRUNC
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC;
    let errors = rustix::fs::open(log, flags, Mode::RUSR | Mode::WUSR).with_context(|| {
        format!("{}: cannot be written; name a folder that is there and yours", log.display())
    })?;
    let mut command = Command::new(program);
    match place {
        Some(place) => command.arg("--address").arg(place),
        None => command.arg("--user"),
    };
    command.current_dir("/").env_remove("LD_PRELOAD");
    if let Some(seconds) = idle_exit_s {
        command.args(["--idle-exit", &seconds.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::from(errors));
    // SAFETY: both calls are mere system calls, allowed between fork and exec; they touch no memory
    // of ours.
    unsafe {
        command.pre_exec(|| {
            // Out of reach of the terminal's signals.
            let _ = rustix::process::setsid();
            // What the caller holds open (locks, pipes) is not the server's to keep.
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

/// The last lines that the server wrote.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(3).collect();
    match lines.is_empty() {
        true => format!("it said nothing (in {})", log.display()),
        false => lines.into_iter().rev().collect::<Vec<_>>().join("; "),
    }
}

/// Where the log of a server that we started is.
pub(crate) fn log_of(address: &str) -> Option<PathBuf> {
    let named = PathBuf::from(format!("{address}.log"));
    let usual = Path::new(address).with_file_name("server.log");
    [named, usual].into_iter().find(|log| log.is_absolute() && log.is_file())
}
