//! The parent process: starts the others, hears their beats, and ends with them.
//!
//! It parses nothing: bytes of children are one of a few, and the processes that they ask for are
//! of one kind each. Not here: the lines to the children (`generation`).
#![allow(unsafe_code, reason = "signalfd(2), which rustix does not have")]

use super::generation::{Generation, Plan, Role, SpawnRequest};
use super::line::STOP;
use super::words::CANNOT;
use crate::claim::{Claim, Claimed, claim};
use crate::log::{self, Level};
use crate::notify::{notify, watchdog_interval};
use crate::options::{Options, Outcome, RunError};
use crate::privileges::{self, Work};
use crate::proxy::{ARGUMENT, CARRIES};
use crate::run::report_other_server;
use crate::seccomp::{self, Part};
use crate::serving::raise_limit;
use crate::signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, umask, wait};
use sojourn_ipc::{Address, BindError, Listener};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The most proxies at one time: five for each of a thousand users (`proxies`); and keepers, of
/// which all but one are about to end. Whoever asks for one kind takes no places of the other.
const PROXIES_MAX: usize = 6000;
const KEEPERS_MAX: usize = 64;
/// Generations that may end one after the other within [`FAILING`]; with one more the server ends.
const FAILURES_MAX: usize = 5;
const FAILING: Duration = Duration::from_secs(60);
/// The time that the other children have to end after the front has ended in order.
const END_LIMIT: Duration = Duration::from_secs(2);
/// The interval at which late children are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How a generation has ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The front had nothing left to do, or was asked to end.
    Orderly,
    /// Before it served.
    Early,
    Failed,
}

/// What follows from the end of a child.
enum Verdict {
    Over(End),
    /// The other children end when the front does, and may be seen first.
    Soon,
    /// The server does without that child.
    Without,
}

/// A process that a child has asked for.
#[derive(Debug)]
struct Other {
    by: Role,
    pid: Pid,
}

/// Returns true if there is room for another process that this child asks for.
fn is_room(others: &[Other], by: Role) -> bool {
    let most = match by {
        Role::Front => PROXIES_MAX,
        Role::Carrier => KEEPERS_MAX,
        Role::Prober => 0,
    };
    others.iter().filter(|other| other.by == by).count() < most
}

struct Parent<'p> {
    options: &'p Options,
    keeper: Option<PathBuf>,
    signals: OwnedFd,
    /// Proxies and keepers that have not ended.
    others: Vec<Other>,
    /// A signal has asked for the end.
    is_stopping: bool,
    /// The interval at which the service manager wants to hear of the server.
    watchdog_interval: Option<Duration>,
    ready: Option<Box<dyn FnOnce() + 'p>>,
}

/// Runs a server of several processes until there is nothing left to do. `words` is the command
/// line after the program's name. Calls `ready` once when clients can connect.
///
/// # Errors
/// [`RunError`].
pub fn run<'p>(
    options: &'p Options,
    words: &'p [OsString],
    ready: impl FnOnce(&str) + 'p,
) -> Result<Outcome, RunError> {
    raise_limit();
    let (claim, address) = match claim(&options.place)? {
        Claimed::Ours(claim, address) => (claim, address),
        Claimed::Another(text) => return Ok(report_other_server(&text, ready)),
    };
    let work = Work {
        is_roots: true,
        network: options.network.is_some(),
        socket: claim.socket.as_deref(),
    };
    privileges::keep_for_others(&work).map_err(RunError::Privileges)?;
    let signals =
        signal_descriptor().map_err(|error| RunError::Process(format!("signals: {error}")))?;
    let listener = match listen(address) {
        Err(BindError::InUse(_)) if claim.socket.is_none() => {
            return Ok(report_other_server(&claim.text, ready));
        }
        listener => listener?,
    };
    seccomp::confine(Part::Parent)?;
    let keeper = claim.keeper();
    let plan = Plan {
        listener: listener.as_fd(),
        lock: claim.lock.as_ref().map(AsFd::as_fd),
        text: &claim.text,
        has_carrier: options.network.is_some(),
        words,
    };
    let text = claim.text.clone();
    let mut parent = Parent {
        options,
        keeper,
        signals,
        others: Vec::new(),
        is_stopping: false,
        watchdog_interval: watchdog_interval(),
        ready: Some(Box::new(move || ready(&text))),
    };
    let outcome = parent.keep_serving(&plan);
    end(listener, claim);
    outcome
}

/// The name goes before the claim, so that the next server finds it free.
fn end(listener: Listener, claim: Claim) {
    drop(listener);
    drop(claim);
}

/// Listens at the server's address, which every user can use: the call of hello decides.
fn listen(address: Address) -> Result<Listener, BindError> {
    let before = umask(Mode::empty());
    let listener = Listener::bind(address);
    umask(before);
    listener
}

/// Has the signals of the end, and of the ends of children, come over a descriptor from now on.
fn signal_descriptor() -> io::Result<OwnedFd> {
    use rustix::fd::FromRawFd as _;
    let set = signals::block_for_parent();
    // SAFETY: the kernel reads `set`.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    match fd {
        0.. => {
            // SAFETY: the descriptor is new, and nobody else has it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

impl Parent<'_> {
    /// Starts one generation after the other, until one ends in order, or too many have failed.
    fn keep_serving(&mut self, plan: &Plan<'_>) -> Result<Outcome, RunError> {
        let mut failures: Vec<Instant> = Vec::new();
        loop {
            let failed = |error| RunError::Process(format!("cannot start processes: {error}"));
            let mut generation = Generation::start(plan).map_err(failed)?;
            let end = self.watch(&mut generation);
            generation.kill();
            self.await_end(&mut generation);
            match end {
                End::Orderly => return Ok(Outcome::Served),
                End::Early if failures.is_empty() => {
                    return Err(RunError::Process("a process of the server cannot begin".into()));
                }
                _ if self.is_stopping => return Ok(Outcome::Served),
                End::Early | End::Failed => failures.push(Instant::now()),
            }
            failures.retain(|when| when.elapsed() < FAILING);
            if failures.len() > FAILURES_MAX {
                let text = "processes of the server end again and again";
                return Err(RunError::Process(text.into()));
            }
            log::say(Level::Warn, format_args!("the server's processes are started anew"));
        }
    }

    /// Watches a generation until it has to end.
    fn watch(&mut self, generation: &mut Generation) -> End {
        let mut is_over_at = None;
        loop {
            self.wait_for(generation);
            for asked in generation.hear() {
                let (by, process) = (asked.by, self.spawn(asked));
                generation.answer(by, process.as_ref());
            }
            if generation.is_ready()
                && let Some(ready) = self.ready.take()
            {
                ready();
                notify("READY=1");
            }
            self.heed_signals(generation);
            for role in self.reap(generation) {
                match judge(generation, role) {
                    Verdict::Over(end) => return end,
                    Verdict::Soon => {
                        is_over_at.get_or_insert_with(|| Instant::now() + END_LIMIT);
                    }
                    Verdict::Without => {}
                }
            }
            if let Some(role) = generation.late() {
                log::say(Level::Error, format_args!("no progress: process {}", role.name()));
                return End::Failed;
            }
            if is_over_at.is_some_and(|at| Instant::now() > at) {
                return End::Failed;
            }
            if self.watchdog_interval.is_some() && self.ready.is_none() && generation.is_healthy() {
                notify("WATCHDOG=1");
            }
        }
    }

    fn wait_for(&self, generation: &Generation) {
        let mut set = vec![PollFd::new(&self.signals, PollFlags::IN)];
        generation.poll_into(&mut set);
        let every = self.watchdog_interval.map_or(LOOK_EVERY, |interval| interval.min(LOOK_EVERY));
        let limit = Timespec {
            tv_sec: i64::try_from(every.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: every.subsec_nanos().into(),
        };
        let _ = poll(&mut set, Some(&limit));
    }

    /// Starts a process that a child asks for: the front's are proxies, the carrier's keepers.
    fn spawn(&mut self, asked: SpawnRequest) -> Option<OwnedFd> {
        if !is_room(&self.others, asked.by) {
            return None;
        }
        let mut fds = asked.fds.into_iter();
        let mut command = Command::new("/proc/self/exe");
        command.stdin(fds.next()?).stdout(Stdio::null()).stderr(Stdio::null());
        match asked.by {
            Role::Front => {
                let carries = self.options.network.is_some();
                command.arg(ARGUMENT).args(carries.then_some(CARRIES));
            }
            Role::Carrier => {
                command.arg(sojourn_carrier::KEEP).arg(self.keeper.as_ref()?);
                command.stdout(fds.next()?);
            }
            Role::Prober => return None,
        }
        let started = command.env_clear().current_dir("/").spawn();
        let pid = Pid::from_child(&started.ok()?);
        self.others.push(Other { by: asked.by, pid });
        pidfd_open(pid, PidfdFlags::empty()).ok()
    }

    /// Reaps all children that have ended. Returns those of the generation.
    fn reap(&mut self, generation: &mut Generation) -> Vec<Role> {
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let status = ExitStatus::from_raw(status.as_raw());
            match generation.note_end(pid, status) {
                Some(role) => ended.push(role),
                None => self.others.retain(|other| other.pid != pid),
            }
        }
        ended
    }

    /// Asks the front to end when a signal has asked for that. A user who asks twice does not want
    /// to wait.
    fn heed_signals(&mut self, generation: &Generation) {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        while let Ok(size) = rustix::io::read(&self.signals, &mut info)
            && size == info.len()
        {
            // The number of the signal is the first field.
            let number = info.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
            if number == Some(libc::SIGCHLD.unsigned_abs()) {
                continue;
            }
            if self.is_stopping {
                generation.kill();
            }
            self.is_stopping = true;
            generation.tell_front(STOP);
        }
    }

    fn await_end(&mut self, generation: &mut Generation) {
        let begun = Instant::now();
        while !generation.has_ended() && begun.elapsed() < END_LIMIT {
            let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&limit));
            self.heed_signals(generation);
            self.reap(generation);
        }
    }
}

/// Decides what follows from the end of a child.
fn judge(generation: &Generation, role: Role) -> Verdict {
    let Some(status) = generation.child(role).and_then(|child| child.ended) else {
        return Verdict::Without;
    };
    match role {
        Role::Front if status.success() => Verdict::Over(End::Orderly),
        // It cannot carry, and has said why.
        Role::Carrier if status.code() == Some(CANNOT.into()) => Verdict::Without,
        _ if status.success() => Verdict::Soon,
        _ => {
            // One that ended by itself has said why.
            if let Some(signal) = status.signal() {
                let name = role.name();
                log::say(Level::Error, format_args!("process {name} was ended by signal {signal}"));
            }
            Verdict::Over(end_by(status, generation.is_ready()))
        }
    }
}

/// Returns the end of a generation one of whose processes has failed.
fn end_by(status: ExitStatus, is_ready: bool) -> End {
    // Whoever kills a process that has hardly begun has not shown that it cannot begin.
    let is_killed = status.signal() == Some(libc::SIGKILL);
    if is_ready || is_killed { End::Failed } else { End::Early }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_for_all_processes_of_one_kind_leaves_those_of_the_other() {
        let pid = rustix::process::getpid();
        let mut others: Vec<_> = (0..PROXIES_MAX).map(|_| Other { by: Role::Front, pid }).collect();
        assert!(!is_room(&others, Role::Front) && is_room(&others, Role::Carrier));
        others.extend((0..KEEPERS_MAX).map(|_| Other { by: Role::Carrier, pid }));
        assert!(!is_room(&others, Role::Carrier) && !is_room(&[], Role::Prober));
    }

    #[test]
    fn a_process_that_is_killed_at_its_beginning_is_started_anew() {
        let [failed, killed, forbidden] =
            [1 << 8, libc::SIGKILL, libc::SIGSYS].map(ExitStatus::from_raw);
        assert!([failed, forbidden].iter().all(|status| end_by(*status, false) == End::Early));
        assert_eq!(end_by(killed, false), End::Failed);
        assert!([failed, killed].iter().all(|status| end_by(*status, true) == End::Failed));
    }
}
