//! The keeper, as the server sees it: a process that holds what the next server needs if this one
//! dies, and does nothing else.
//!
//! # Theory of operation
//! The server starts the keeper with the first session, by running its own program anew
//! ([`ARGUMENT`], [`KeeperLocation::start`]). The keeper ends when there is nothing to hold any
//! more. It holds each interface's filter by the names of [`Filter::holdings`]. Of each session it
//! holds everything that the carrier has: the socket, the stream's region, the record as it was
//! taken out, the inbox of its program. The session's numbers are in the name. So the next server
//! believes no program: it adopts only what it gets from a process of its own.
//!
//! A server without a path has no keeper, and sessions end with it. Not here: the adoption of what
//! is taken over (`adopt`), and the keeper itself (`sojourn_filter::keeper`).

use crate::abandoned;
use crate::fd_name::{FdName, Kept};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sojourn_filter::keeper::{self, FoundKeeper, Keeper, KeptDescriptors, NewKeeper, Patience};
use sojourn_filter::{Filter, Holding, OwnerId, holding_of};
use sojourn_session::{DelegationToken, Inode, ProcessId};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The argument with which a program that has a carrier is run as its keeper; the path of the
/// socket follows. Standard input is the server's end, and standard output listens.
pub const ARGUMENT: &str = "--keep";

/// How long a keeper waits for a server.
const PATIENCE: Patience = Patience {
    with_programs: Duration::from_secs(3600),
    // This is as long as a program waits that sends a session home.
    after_programs: Duration::from_secs(5),
};
/// How long the keeper of a server that has just died may take to end, if it has nothing.
const FIND_LIMIT: Duration = Duration::from_secs(2);

const LINK: &str = "link";
const PROGRAM: &str = "program";

/// The holdings of an earlier server.
#[derive(Debug, Default)]
pub(crate) struct InheritedState {
    /// Filters by interface, in the form for [`Filter::adopt`].
    pub(crate) links: HashMap<u32, Vec<Holding<OwnedFd>>>,
    pub(crate) sessions: Vec<InheritedSession>,
    pub(crate) programs: HashMap<ProcessId, OwnedFd>,
}

/// A session of an earlier server.
#[derive(Debug)]
pub(crate) struct InheritedSession {
    pub(crate) fd_name: FdName,
    /// Its descriptors, in the order of [`Kept::fds`].
    pub(crate) fds: Vec<OwnedFd>,
}

/// Starts the process of a keeper at that path, with its control socket and its listening socket;
/// returns the process.
pub type Start = Box<dyn Fn(&Path, OwnedFd, OwnedFd) -> io::Result<OwnedFd> + Send>;

/// The place of a server's keepers.
pub struct KeeperLocation {
    /// The path at which a keeper listens.
    pub path: PathBuf,
    /// The way to start one.
    pub start: Start,
}

impl std::fmt::Debug for KeeperLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeeperLocation").field(&self.path).finish()
    }
}

/// The keeper of this server, if there is one now.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    location: Option<KeeperLocation>,
    keeper: Option<Keeper>,
    /// The processes of keepers that were started; all but one are about to end.
    started: Vec<OwnedFd>,
    /// The programs of the sessions that are held, by token.
    sessions: HashMap<DelegationToken, ProcessId>,
    /// The number of sessions of each program.
    programs: HashMap<ProcessId, usize>,
    /// The names held of each interface's filter.
    links: HashMap<u32, BTreeSet<String>>,
    /// The keeper has gone by itself: the next one has to be told everything.
    is_lost: bool,
}

impl Keeping {
    /// Has sessions kept by a keeper at this place.
    pub(crate) fn at(location: Option<KeeperLocation>) -> Self {
        Self { location, ..Self::default() }
    }

    /// Takes over the holdings of an earlier server, if its keeper is still there.
    pub(crate) fn take_over(&mut self) -> io::Result<Option<InheritedState>> {
        let Some(KeeperLocation { path, .. }) = &self.location else { return Ok(None) };
        let deadline = Instant::now() + FIND_LIMIT;
        let FoundKeeper { keeper, kept } = loop {
            match Keeper::find(path) {
                Ok(found) => break found,
                Err(error) if is_nobody(&error) => return Ok(None),
                // It is ending.
                Err(error)
                    if error.kind() == io::ErrorKind::BrokenPipe && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(error),
            }
        };
        let mut left = InheritedState::default();
        for Holding { name, fd: program } in kept.programs {
            let pid = name.strip_prefix(PROGRAM).and_then(|pid| pid.trim().parse().ok());
            if let Some(pid) = pid {
                left.programs.insert(ProcessId(pid), program);
            }
        }
        for KeptDescriptors { name, mut fds } in kept.held {
            if let Ok(fd_name) = name.parse() {
                left.sessions.push(InheritedSession { fd_name, fds });
            } else if let Some(LinkHolding { index, name }) = link_name(&name)
                && let Some(fd) = fds.pop()
            {
                self.links.entry(index).or_default().insert(name.to_owned());
                left.links.entry(index).or_default().push(Holding { name: name.to_owned(), fd });
            } else {
                let _ = keeper.release(&name);
            }
        }
        for InheritedSession { fd_name, .. } in &left.sessions {
            self.sessions.insert(fd_name.token, fd_name.pid);
            *self.programs.entry(fd_name.pid).or_default() += 1;
        }
        for pid in left.programs.keys().filter(|pid| !self.programs.contains_key(pid)) {
            let _ = keeper.release(&program_name(*pid));
        }
        self.keeper = Some(keeper);
        Ok(Some(left))
    }

    /// Tells the keeper that the interface's filter has other descriptors than before.
    pub(crate) fn link(&mut self, index: u32, filter: &Filter) {
        let Some(keeper) = &self.keeper else { return };
        let held = self.links.entry(index).or_default();
        let mut result = Ok(());
        let mut now = BTreeSet::new();
        for Holding { name, fd } in filter.holdings() {
            if !held.contains(&name) && result.is_ok() {
                result = keeper.hold(&format!("{LINK} {index} {name}"), &[fd]);
            }
            now.insert(name);
        }
        for name in held.difference(&now) {
            result = result.and_then(|()| keeper.release(&format!("{LINK} {index} {name}")));
        }
        *held = now;
        self.check(result);
    }

    /// Releases an owner that is about to be removed.
    pub(crate) fn forget_owner(&mut self, index: u32, owner: OwnerId) {
        let name = holding_of(owner);
        let is_held = self.links.get_mut(&index).is_some_and(|held| held.remove(&name));
        if let Some(keeper) = self.keeper.as_ref().filter(|_| is_held) {
            let result = keeper.release(&format!("{LINK} {index} {name}"));
            self.check(result);
        }
    }

    /// Releases an interface that has no filter any more.
    pub(crate) fn forget_link(&mut self, index: u32) {
        let names = self.links.remove(&index).unwrap_or_default();
        let Some(keeper) = &self.keeper else { return };
        let mut names = names.iter().map(|name| format!("{LINK} {index} {name}"));
        let result = names.try_for_each(|name| keeper.release(&name));
        self.check(result);
    }

    /// Has the session kept from now on. `process`: its program, as a join names it.
    pub(crate) fn hold(
        &mut self,
        kept: &Kept,
        process: Option<BorrowedFd<'_>>,
        socket: Option<BorrowedFd<'_>>,
        record: BorrowedFd<'_>,
    ) {
        self.ready();
        let Some(keeper) = &self.keeper else { return };
        let pid = kept.fd_name.pid;
        if self.sessions.insert(kept.fd_name.token, pid).is_some() {
            return;
        }
        *self.programs.entry(pid).or_default() += 1;
        // The program is watched by its descriptor: another process may have its number by now. And
        // it may be that other one: a process that has ended may have sessions here still, if a
        // child of its has its connection. So the last process of a number is the one that counts.
        let mut result = process.map_or(Ok(()), |it| keeper.watch(&program_name(pid), it));
        if let Some(fds) = kept.fds(socket, record) {
            result = result.and_then(|()| keeper.hold(&kept.fd_name.to_string(), &fds));
        }
        self.check(result);
    }

    /// Releases a session.
    pub(crate) fn release(&mut self, fd_name: &FdName) {
        let Some(keeper) = &self.keeper else { return };
        if self.sessions.remove(&fd_name.token).is_none() {
            return;
        }
        let mut result = keeper.release(&fd_name.to_string());
        if let Some(sessions) = self.programs.get_mut(&fd_name.pid) {
            *sessions -= 1;
            if *sessions == 0 {
                self.programs.remove(&fd_name.pid);
                result = result.and_then(|()| keeper.release(&program_name(fd_name.pid)));
            }
        }
        self.check(result);
    }

    /// Returns true if the keeper has gone by itself since the last call.
    pub(crate) fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// Checks that the keeper is still there, lets it end if there is nothing to hold, and reaps
    /// keepers that have ended.
    pub(crate) fn tidy(&mut self) {
        if self.keeper.as_ref().is_some_and(Keeper::has_ended) {
            self.check(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.keeper.is_some() && self.links.is_empty() && self.programs.is_empty() {
            self.keeper = None;
        }
        self.started.retain(|process| !has_ended(process));
    }

    /// Returns true if a keeper that was let go of has not ended yet.
    pub(crate) fn is_ending(&self) -> bool {
        self.started.len() > usize::from(self.keeper.is_some())
    }

    fn check(&mut self, result: io::Result<()>) {
        if result.is_err() {
            self.keeper = None;
            self.sessions.clear();
            self.programs.clear();
            self.links.clear();
            self.is_lost = true;
        }
    }

    /// Makes sure that there is a keeper.
    pub(crate) fn ready(&mut self) {
        if let Some(location) = self.location.as_ref().filter(|_| self.keeper.is_none())
            && let Ok(StartedKeeper { keeper, process }) = location.start()
        {
            self.keeper = Some(keeper);
            self.started.push(process);
        }
    }
}

/// A keeper that has been started, and its process.
struct StartedKeeper {
    keeper: Keeper,
    process: OwnedFd,
}

impl KeeperLocation {
    /// Starts a keeper. Only the server that has the place makes this file.
    fn start(&self) -> io::Result<StartedKeeper> {
        let NewKeeper { keeper, control } = Keeper::create()?;
        let _ = std::fs::remove_file(&self.path);
        let listener = keeper::listen(&self.path)?;
        let process = (self.start)(&self.path, control, listener)?;
        Ok(StartedKeeper { keeper, process })
    }
}

/// Returns true if a process has ended, and reaps it if it is a child of this one.
fn has_ended(process: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let _ = waitid(WaitId::PidFd(process.as_fd()), options);
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A process descriptor is readable from the end of its process on (pidfd_open(2)).
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once)) != Ok(0)
}

/// Returns true if the error says that nobody listens.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// A descriptor of an interface's filter, as a keeper holds it.
#[derive(Debug, PartialEq, Eq)]
struct LinkHolding<'a> {
    /// The interface.
    index: u32,
    /// The name that the filter has given it.
    name: &'a str,
}

fn link_name(name: &str) -> Option<LinkHolding<'_>> {
    let (index, name) = name.strip_prefix(LINK)?.trim_start().split_once(' ')?;
    Some(LinkHolding { index: index.parse().ok()?, name })
}

fn program_name(pid: ProcessId) -> String {
    format!("{PROGRAM} {pid}")
}

/// Starts the process of a keeper as a child of this one: a [`Start`].
///
/// # Errors
/// No room for a process.
pub fn start(path: &Path, control: OwnedFd, listener: OwnedFd) -> io::Result<OwnedFd> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(path).current_dir("/").env_clear();
    command.stdin(control).stdout(listener).stderr(Stdio::null());
    let child = Pid::from_child(&command.spawn()?);
    Ok(pidfd_open(child, PidfdFlags::empty())?)
}

/// Runs as the keeper; called by the process that was run with [`ARGUMENT`]. `path` is the
/// socket's.
///
/// # Errors
/// The kernel's. Everything that was held is let go of then.
pub fn keep(path: &Path) -> io::Result<()> {
    // The keeper must not be interrupted with its server, and needs no rights but to hold.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"sojourn-keeper");
    let none = CapabilitySet::empty();
    let _ = set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    );
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let listener = io::stdout().as_fd().try_clone_to_owned()?;
    let own = file_at(path);
    let mut kept = keeper::keep(control, &listener, PATIENCE);
    if let Ok(held) = &mut kept {
        // With its filters gone the sessions' packets are the kernel's again.
        held.retain(|name, _| link_name(name).is_none());
        core::mem::take(held).into_values().for_each(abandoned::end);
    }
    // The file goes before the listener closes, so that nobody finds a file without a listener. By
    // now it may be another keeper's.
    if own.is_some() && file_at(path) == own {
        let _ = std::fs::remove_file(path);
    }
    kept.map(drop)
}

/// A file, so that another one at its path is told apart.
#[derive(PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: Inode,
    changed_s: i64,
    changed_ns: i64,
}

/// Identifies the file at a path.
fn file_at(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::symlink_metadata(path).ok()?;
    Some(FileIdentity {
        device: found.dev(),
        inode: Inode(found.ino()),
        changed_s: found.ctime(),
        changed_ns: found.ctime_nsec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_filters_tell_the_interface() {
        let expected = LinkHolding { index: 3, name: "sojourn_link" };
        assert_eq!(link_name("link 3 sojourn_link"), Some(expected));
        assert_eq!(link_name("linked"), None);
        assert_eq!(link_name("program 3"), None);
    }
    /// A program has ended, and what it left holds on to its session. Another program gets its
    /// number, and a session.
    #[test]
    fn the_last_program_of_a_number_is_the_one_that_lives() {
        let path = std::env::temp_dir().join(format!("sojourn-keeping-{}", std::process::id()));
        let own = || pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
        let start = move |_: &Path, control, listener| {
            std::thread::spawn(move || keeper::keep(control, &listener, PATIENCE));
            Ok(own()?)
        };
        let location = || KeeperLocation { path: path.clone(), start: Box::new(start) };
        let mut child = Command::new("true").spawn().unwrap();
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut keeping = Keeping::at(Some(location()));
        for (token, program) in [(1, ended), (2, own().unwrap())] {
            let fd_name = format!("session {token} 7 1 4096 8192 9 3 1234 2 5 11 0").parse();
            let inbox = [null().into(), null().into(), null().into()];
            let kept = Kept { fd_name: fd_name.unwrap(), region: null().into(), inbox, own: None };
            keeping.hold(&kept, Some(program.as_fd()), Some(null().as_fd()), null().as_fd());
        }
        drop(keeping);
        let left = Keeping::at(Some(location())).take_over().unwrap().unwrap();
        assert_eq!(left.sessions.len(), 2);
        assert!(!has_ended(&left.programs[&ProcessId(1234)]), "its session would be ended");
        let _ = std::fs::remove_file(&path);
    }
}
