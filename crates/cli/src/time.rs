//! `sojourn time`: how long each layer takes, for a session or for a program's sessions.
//!
//! The kernel's stamps come from `sojourn_time`, on any program, under Sojourn or not. Not here:
//! the holders of a socket (`time/holders`), sessions that are away (`time/away`), how times are
//! shown (`time/shown`). Read docs/use/time.md first.

mod away;
mod holders;
mod shown;

use crate::args::Time;
use crate::failure::{Failure, RUN_FAILED, RUN_NOT_EXECUTABLE};
use crate::launch;
use crate::sessions::Name;
use crate::signals::Signals;
use anyhow::{Context as _, Result, bail};
use shown::TimeOutput;
use sojourn_session::{Inode, ProcessId};
use sojourn_time::{Ledger, Programs, Taken};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// The default time for which existing sessions are watched.
const USUAL: Duration = Duration::from_secs(5);
/// The longest time until the ring of events is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The time between two looks for living holders of a session.
const ALIVE_EVERY: Duration = Duration::from_millis(500);

/// Watches sessions and shows their times. Returns the program's exit status if a program is run.
pub(crate) fn time(options: &Time) -> Result<u8, Failure> {
    if !options.command.is_empty() {
        return run(options);
    }
    if let Some(Name::Stream(stream)) = options.session {
        away::time(options, stream, USUAL)?;
        return Ok(0);
    }
    let Watched { pids, inode } = watched(options)?;
    let mut watch = Watch::new(options).map_err(Failure::from)?;
    if let Some(inode) = inode {
        watch
            .programs
            .only(sojourn_time::Inode(inode.0))
            .context("the session cannot be watched")?;
    }
    for pid in &pids {
        watch.programs.watch(pid.0).context("the process cannot be watched")?;
    }
    let signals = Signals::block().context("signals cannot be waited for")?;
    let deadline = Instant::now() + options.duration.unwrap_or(USUAL);
    let mut looked = Instant::now();
    while Instant::now() < deadline && !signals.came(Duration::ZERO) {
        watch.turn(deadline)?;
        if looked.elapsed() > ALIVE_EVERY {
            looked = Instant::now();
            if !pids.iter().any(|pid| holders::is_alive(*pid)) {
                break;
            }
        }
    }
    watch.finish()?;
    Ok(0)
}

/// What is watched.
struct Watched {
    pids: Vec<ProcessId>,
    /// The inode if it is a single socket or pipe.
    inode: Option<Inode>,
}

/// Returns what the options say is to be watched.
fn watched(options: &Time) -> Result<Watched> {
    match (options.session, options.pid) {
        (Some(Name::Inode(inode)), _) => {
            let pids = holders::of(inode);
            if pids.is_empty() {
                bail!(
                    "no process that may be seen has a socket or pipe @{inode}: `ss -e` shows inodes as ino, `sojourn ss` in its first column"
                );
            }
            Ok(Watched { pids, inode: Some(inode) })
        }
        (_, Some(pid)) if holders::is_alive(pid) => Ok(Watched { pids: vec![pid], inode: None }),
        (_, Some(pid)) => bail!("there is no process {pid}"),
        // The caller has handled sessions that are away.
        (Some(Name::Stream(_)) | None, None) => bail!("neither a session nor a process was named"),
    }
}

/// Runs a program, all of whose sessions are watched from its beginning.
fn run(options: &Time) -> Result<u8, Failure> {
    let failed = |error| Failure::new(RUN_FAILED, error);
    let Some((name, arguments)) = options.command.split_first() else {
        return Err(failed(anyhow::anyhow!("no program was named")));
    };
    let file = launch::find_here(name)?;
    let mut watch = Watch::new(options).map_err(failed)?;
    // The program is watched from its first instruction because this process, which makes it, is.
    let own = std::process::id();
    watch.programs.watch(own).map_err(|error| failed(error.into()))?;
    let started = std::process::Command::new(&file).args(arguments).spawn();
    watch.programs.forget(own);
    let mut child = started.map_err(|error| {
        let error = anyhow::Error::new(error).context(format!("{file:?}: cannot be run"));
        Failure::new(RUN_NOT_EXECUTABLE, error)
    })?;
    // As with time(1), the terminal's signals end the program but not this process, which still has
    // to report.
    ignore_terminal();
    let status = watch.until_end(&mut child, options.duration).map_err(failed)?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(RUN_FAILED))
}

fn ignore_terminal() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: this process has no handlers for these signals, and none is set.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// The stamps, the times made of them, and their display.
struct Watch<'o> {
    programs: Programs,
    ledger: Ledger,
    shown: TimeOutput<'o>,
    next: Option<Instant>,
    interval: Option<Duration>,
}

impl<'o> Watch<'o> {
    fn new(options: &'o Time) -> Result<Self> {
        let programs = Programs::load()?;
        let interval = options.interval.map(|seconds| Duration::from_secs(seconds.into()));
        let next = interval.map(|interval| Instant::now() + interval);
        Ok(Self {
            programs,
            ledger: Ledger::default(),
            shown: TimeOutput::new(options),
            next,
            interval,
        })
    }

    /// Waits for events until `deadline` at most and takes them; shows the times if a report is
    /// due.
    fn turn(&mut self, deadline: Instant) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.programs.wait(LOOK_EVERY.min(left));
        let ledger = &mut self.ledger;
        self.programs.read(|event| ledger.add(&event));
        if self.next.is_some_and(|next| Instant::now() >= next) {
            self.next = self.interval.map(|interval| Instant::now() + interval);
            self.shown.again(&self.ledger.sessions(), &self.taken())?;
        }
        Ok(())
    }

    /// Watches until the program has ended, or until `limit` is over. Returns the program's exit
    /// status.
    fn until_end(&mut self, child: &mut Child, limit: Option<Duration>) -> Result<ExitStatus> {
        let far = Duration::from_secs(u32::MAX.into());
        let deadline = Instant::now() + limit.unwrap_or(far);
        while Instant::now() < deadline {
            self.turn(deadline)?;
            if let Some(status) = child.try_wait().context("the program cannot be waited for")? {
                self.finish()?;
                return Ok(status);
            }
        }
        self.finish()?;
        child.wait().context("the program cannot be waited for")
    }

    /// Takes the last events and shows all times.
    fn finish(&mut self) -> Result<()> {
        let ledger = &mut self.ledger;
        self.programs.read(|event| ledger.add(&event));
        self.shown.last(&self.ledger.sessions(), &self.taken())
    }

    fn taken(&self) -> Taken {
        Taken {
            cost: Some(self.programs.cost()),
            clock_ns: None,
            missing: self.programs.missing().to_vec(),
            refusal: self.programs.refusal().map(str::to_owned),
            lost: self.programs.lost(),
            faults: self.ledger.faults(),
        }
    }
}
