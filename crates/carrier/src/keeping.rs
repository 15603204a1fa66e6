//! What the next server needs if this one dies: told to a keeper, which is a process that does
//! nothing else.
//!
//! # Theory of operation
//! The keeper is started with the first session, by running this program anew ([`ARGUMENT`]), and
//! ends when there is nothing to be kept any more. It holds each interface's filter by the names of
//! [`Filter::holdings`], and of each session everything that the carrier has of it: the socket, the
//! stream's region, the record as it was taken out, the inbox of its program. The session's numbers
//! are in the name. So the next server believes no program: what it adopts it has from a process of
//! its own.
//!
//! Where the server has no path there is no keeper, and sessions end with the server. Not here:
//! what becomes of what is taken over (`adopt`), the keeper itself (`sojourn_filter::keeper`).

use crate::label::{Kept, Label};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sojourn_filter::keeper::{self, Keeper, Patience};
use sojourn_filter::{Filter, OwnerId, holding_of};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a program that has a carrier is run with to be its keeper; the path of the socket follows.
/// Standard input is the server's end, standard output listens.
pub const ARGUMENT: &str = "--keep";

/// How long a keeper waits for a server.
const PATIENCE: Patience = Patience {
    with_programs: Duration::from_secs(3600),
    // As long as a program waits that sends a session home.
    after_programs: Duration::from_secs(5),
};
/// How long the keeper of a server that has just died may take to notice.
const FIND_LIMIT: Duration = Duration::from_secs(2);

const LINK: &str = "link";
const PROGRAM: &str = "program";

/// What an earlier server has left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Filters by interface, as [`Filter::adopt`] takes them.
    pub(crate) links: HashMap<u32, Vec<(String, OwnedFd)>>,
    /// Sessions and their descriptors, in the order of [`Kept::fds`].
    pub(crate) sessions: Vec<(Label, Vec<OwnedFd>)>,
    pub(crate) programs: HashMap<u32, OwnedFd>,
}

/// The keeper of this server, if there is one now.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    path: Option<PathBuf>,
    keeper: Option<Keeper>,
    /// Keepers that this process has started; one at most is not about to end.
    children: Vec<Child>,
    /// Programs of the sessions that are held, by token.
    sessions: HashMap<u64, u32>,
    /// Sessions of each program.
    programs: HashMap<u32, usize>,
    /// Names held of each interface's filter.
    links: HashMap<u32, BTreeSet<String>>,
    /// A keeper has gone by itself: what it held the next one is to be told.
    is_lost: bool,
}

impl Keeping {
    /// Sessions are kept by a keeper that listens at this path.
    pub(crate) fn at(path: Option<PathBuf>) -> Self {
        Self { path, ..Self::default() }
    }

    /// Takes over what an earlier server has left, if its keeper is still there.
    pub(crate) fn take_over(&mut self) -> io::Result<Option<Left>> {
        let Some(path) = &self.path else { return Ok(None) };
        let deadline = Instant::now() + FIND_LIMIT;
        let (keeper, kept) = loop {
            match Keeper::find(path) {
                Ok(found) => break found,
                Err(error) if is_nobody(&error) => return Ok(None),
                // It has not noticed the death of its server yet, or is ending.
                Err(error)
                    if error.kind() == io::ErrorKind::BrokenPipe && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(error),
            }
        };
        let mut left = Left::default();
        for (name, program) in kept.programs {
            if let Some(pid) = name.strip_prefix(PROGRAM).and_then(|pid| pid.trim().parse().ok()) {
                left.programs.insert(pid, program);
            }
        }
        for (name, mut fds) in kept.held {
            if let Ok(label) = name.parse() {
                left.sessions.push((label, fds));
            } else if let Some((index, name)) = link_name(&name)
                && let Some(fd) = fds.pop()
            {
                self.links.entry(index).or_default().insert(name.to_owned());
                left.links.entry(index).or_default().push((name.to_owned(), fd));
            } else {
                let _ = keeper.release(&name);
            }
        }
        for (label, _) in &left.sessions {
            self.sessions.insert(label.token, label.pid);
            *self.programs.entry(label.pid).or_default() += 1;
        }
        for pid in left.programs.keys().filter(|pid| !self.programs.contains_key(pid)) {
            let _ = keeper.release(&program_name(*pid));
        }
        self.keeper = Some(keeper);
        Ok(Some(left))
    }

    /// The interface's filter has other descriptors than before. What has the same name is the same
    /// as long as there is the filter.
    pub(crate) fn link(&mut self, index: u32, filter: &Filter) {
        let Some(keeper) = &self.keeper else { return };
        let held = self.links.entry(index).or_default();
        let mut told = Ok(());
        let mut now = BTreeSet::new();
        for (name, fd) in filter.holdings() {
            if !held.contains(&name) && told.is_ok() {
                told = keeper.hold(&format!("{LINK} {index} {name}"), &[fd]);
            }
            now.insert(name);
        }
        for name in held.difference(&now) {
            told = told.and_then(|()| keeper.release(&format!("{LINK} {index} {name}")));
        }
        *held = now;
        self.check(told);
    }

    /// The owner is about to be removed.
    pub(crate) fn forget_owner(&mut self, index: u32, owner: OwnerId) {
        let name = holding_of(owner);
        let is_held = self.links.get_mut(&index).is_some_and(|held| held.remove(&name));
        if let Some(keeper) = self.keeper.as_ref().filter(|_| is_held) {
            let told = keeper.release(&format!("{LINK} {index} {name}"));
            self.check(told);
        }
    }

    /// The interface has no filter any more.
    pub(crate) fn forget_link(&mut self, index: u32) {
        let names = self.links.remove(&index).unwrap_or_default();
        let Some(keeper) = &self.keeper else { return };
        let mut names = names.iter().map(|name| format!("{LINK} {index} {name}"));
        let told = names.try_for_each(|name| keeper.release(&name));
        self.check(told);
    }

    /// The session is kept from now on.
    /// `process`: its program, as a join names it.
    pub(crate) fn hold(
        &mut self,
        kept: &Kept,
        process: Option<BorrowedFd<'_>>,
        socket: Option<&OwnedFd>,
        record: BorrowedFd<'_>,
    ) {
        self.ready();
        let Some(keeper) = &self.keeper else { return };
        let pid = kept.label.pid;
        if self.sessions.insert(kept.label.token, pid).is_some() {
            return;
        }
        let sessions = self.programs.entry(pid).or_default();
        *sessions += 1;
        let mut told = Ok(());
        if *sessions == 1 {
            // Not by its number, which another process may have by now.
            if let Some(program) = process {
                told = keeper.watch(&program_name(pid), program);
            }
        }
        if let Some(fds) = kept.fds(socket, record) {
            told = told.and_then(|()| keeper.hold(&kept.label.to_string(), &fds));
        }
        self.check(told);
    }

    /// It is not kept any more.
    pub(crate) fn release(&mut self, label: &Label) {
        let Some(keeper) = &self.keeper else { return };
        if self.sessions.remove(&label.token).is_none() {
            return;
        }
        let mut told = keeper.release(&label.to_string());
        if let Some(sessions) = self.programs.get_mut(&label.pid) {
            *sessions -= 1;
            if *sessions == 0 {
                self.programs.remove(&label.pid);
                told = told.and_then(|()| keeper.release(&program_name(label.pid)));
            }
        }
        self.check(told);
    }

    /// Whether a keeper has gone by itself, since this was last asked.
    pub(crate) fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// Sees whether the keeper is there still. Lets it end if there is nothing to be kept, and sees
    /// to those that have ended.
    pub(crate) fn tidy(&mut self) {
        if self.keeper.as_ref().is_some_and(Keeper::has_ended) {
            self.check(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.keeper.is_some() && self.links.is_empty() && self.programs.is_empty() {
            self.keeper = None;
        }
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Whether a keeper that was let go of has not ended yet.
    pub(crate) fn is_ending(&self) -> bool {
        self.children.len() > usize::from(self.keeper.is_some())
    }

    fn check(&mut self, told: io::Result<()>) {
        if told.is_err() {
            self.keeper = None;
            self.sessions.clear();
            self.programs.clear();
            self.links.clear();
            self.is_lost = true;
        }
    }

    /// Sees to it that there is a keeper.
    pub(crate) fn ready(&mut self) {
        if let Some(path) = self.path.clone().filter(|_| self.keeper.is_none())
            && let Ok((keeper, child)) = start(&path)
        {
            self.keeper = Some(keeper);
            self.children.push(child);
        }
    }
}

/// Whether nobody listens.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn link_name(name: &str) -> Option<(u32, &str)> {
    let (index, name) = name.strip_prefix(LINK)?.trim_start().split_once(' ')?;
    Some((index.parse().ok()?, name))
}

fn program_name(pid: u32) -> String {
    format!("{PROGRAM} {pid}")
}

/// Starts a keeper. Whoever has the server's place is the only one that makes this file.
fn start(path: &Path) -> io::Result<(Keeper, Child)> {
    let (keeper, control) = Keeper::new()?;
    let _ = std::fs::remove_file(path);
    let listener = keeper::listen(path)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(path).current_dir("/").env_clear();
    command.stdin(control).stdout(listener).stderr(Stdio::null());
    let child = command.spawn()?;
    Ok((keeper, child))
}

/// What the process does that was run with [`ARGUMENT`]; `path` is the socket's.
///
/// # Errors
/// The kernel's. Everything that was kept is let go of then.
pub fn keep(path: &Path) -> io::Result<()> {
    // Not to be interrupted with its server, nor to do anything but hold.
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
    let kept = keeper::keep(control, &listener, PATIENCE);
    // The kernel knows of them what is no longer true: as if they were not there, it resets their
    // peers when these speak.
    for fd in kept.iter().flat_map(|kept| kept.values()).flatten() {
        // Of what is no such socket nothing comes.
        let _ = crate::raw::disconnect(fd);
    }
    // Before the listener closes, so that whoever finds nobody there finds no file either. It may
    // be another keeper's by now.
    if own.is_some() && file_at(path) == own {
        let _ = std::fs::remove_file(path);
    }
    kept.map(drop)
}

/// Which file is there.
fn file_at(path: &Path) -> Option<(u64, u64, i64, i64)> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_filters_tell_the_interface() {
        assert_eq!(link_name("link 3 sojourn_link"), Some((3, "sojourn_link")));
        assert_eq!(link_name("linked"), None);
        assert_eq!(link_name("program 3"), None);
    }
}
