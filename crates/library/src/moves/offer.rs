//! Offering a hot descriptor to the server, and what is remembered until the answer comes.
//!
//! The program's thread only leaves a job; the rest is the protocol thread's. Read
//! `docs/understand/streams.md`, "Moving out".

use crate::fds::entry::{FdEntry, mark};
use crate::host::descriptors::OpenDescriptors;
use crate::host::lock::lock;
use crate::host::{OwnCalls, kernel};
use crate::io::signals::{flags_of, may_be_away};
use crate::process::engine::Job;
use crate::process::library::Library;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::fs::{OFlags, Stat};
use sojourn_session::config::Home;
use sojourn_session::{HomeT, KindT, LocalNumber, OfferT, ReasonT};

/// How long the call that makes a session hot waits for the server's word, where that is wanted.
const DECISION_LIMIT: Duration = Duration::from_secs(1);

/// An offer that waits for the server's word.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) local: LocalNumber,
    pub(crate) fd: i32,
    pub(crate) version: u32,
    /// The `fork` epoch: who holds the descriptor was looked at then.
    pub(crate) epoch: u32,
    /// The alias epoch: `numbers` were all then.
    pub(crate) aliases: u32,
    pub(crate) kind: KindT,
    /// Every number of the description in this process, `fd` first.
    pub(crate) numbers: Vec<i32>,
    pub(crate) what: OfferT,
}

impl Library {
    /// Leaves the job, unless there is one.
    pub(crate) fn offer(&self, fd: i32, entry: &FdEntry, kind: KindT) {
        if kind == KindT::Pipe {
            self.pipe_made();
        }
        let before = entry.marks.fetch_or(mark::OFFERED | mark::WAS_OFFERED, Ordering::SeqCst);
        if before & mark::OFFERED == 0 {
            let version = entry.version.load(Ordering::SeqCst);
            self.push(Job::Offer { fd, version, kind });
            if self.policy.config().await_moves
                && let Some(engine) = self.engine().filter(|engine| engine.is_running())
            {
                engine.await_jobs(DECISION_LIMIT);
            }
        }
    }

    /// A job for the protocol thread of this process.
    pub(crate) fn push(&self, job: Job) {
        if let Some(engine) = self.engine_or_new() {
            engine.push(self, job);
        }
    }

    /// The offer of a descriptor, if it may move as things are.
    pub(crate) fn prepare_offer(
        &self,
        fd: i32,
        version: u32,
        kind: KindT,
        descriptors: &mut dyn OpenDescriptors,
    ) -> Option<Offer> {
        let entry = self.table.known(fd)?;
        if entry.version.load(Ordering::SeqCst) != version {
            return None;
        }
        if self.stays_for_rings(fd, entry, kind) {
            return None;
        }
        entry.let_go(ReasonT::Ring);
        // Signals for I/O that only the kernel can send (`O_ASYNC`, fcntl(2)).
        if !may_be_away(flags_of(fd), kind) {
            entry.keep_for_now(ReasonT::Operation);
            return None;
        }
        entry.let_go(ReasonT::Operation);
        let epoch = self.fork_epoch.load(Ordering::SeqCst);
        let aliases = self.alias_epoch.load(Ordering::SeqCst);
        let numbers = self.numbers_of(fd, entry, || descriptors.numbers())?;
        let waited = self.own_calls(&numbers, descriptors);
        if waited.is_none() {
            entry.was_refused();
        }
        let waited = waited?;
        let set = self.set_for_offer(&numbers)?;
        let known = &self.engine()?.unmanaged_sets;
        if set.is_none() && self.is_in_unmanaged_set(&numbers, &mut lock(known), descriptors) {
            if waited.is_empty() {
                entry.mark(mark::SETS);
            } else {
                // The set is adopted when the thread comes back from it.
                entry.was_refused();
            }
            return None;
        }
        let is_sole = self.is_sole(entry);
        let local = LocalNumber(self.engine()?.next_local.fetch_add(1, Ordering::Relaxed));
        let ring_bytes = self.policy.config().ring_bytes(kind);
        let home = entry.wished_home().unwrap_or(match self.policy.config().home {
            Home::Library => HomeT::Library,
            Home::Server => HomeT::Server,
        });
        let what = OfferT { local: local.0, set: set.number(), ring_bytes, is_sole, home };
        Some(Offer { local, fd, version, epoch, aliases, kind, numbers, what })
    }

    /// Has the program's own system calls arrive at the shell, where that is wanted and possible.
    /// Returns the sets for which threads still wait by calls of before; `None` if such a call
    /// concerns `numbers`.
    fn own_calls(
        &self,
        numbers: &[i32],
        descriptors: &mut dyn OpenDescriptors,
    ) -> Option<Vec<i32>> {
        if !self.policy.config().rewrite {
            return Some(Vec::new());
        }
        match descriptors.own_calls(self.host(), numbers) {
            OwnCalls::Unseen => Some(Vec::new()),
            OwnCalls::UnderWay => None,
            OwnCalls::Seen(waited) => {
                let known = &self.engine()?.unmanaged_sets;
                self.adopt_sets(&mut lock(known), &waited, descriptors);
                Some(waited)
            }
        }
    }

    /// Reports that code has come which may make system calls itself. Returns when these arrive at
    /// the shell, where that is possible, and after a while in any case.
    pub fn code_came(&self) {
        if let Some(engine) = self.engine().filter(|engine| engine.is_running()) {
            self.push(Job::CodeCame);
            engine.await_jobs(DECISION_LIMIT);
        }
    }

    /// Returns true if this process is known to be the only holder.
    pub(crate) fn is_sole(&self, entry: &FdEntry) -> bool {
        entry.has(mark::BORN_HERE)
            && !entry.has(mark::PASSED)
            && entry.epoch.load(Ordering::SeqCst) == self.fork_epoch.load(Ordering::SeqCst)
    }

    /// Every number of the open file description of `fd`; `listed` lists those that are open, or
    /// none where there is no /proc, as in most root folders of a program's own.
    pub(crate) fn numbers_of(
        &self,
        fd: i32,
        entry: &FdEntry,
        listed: impl FnOnce() -> Vec<i32>,
    ) -> Option<Vec<i32>> {
        if !entry.may_be_aliased() {
            return Some(vec![fd]);
        }
        let this = OpenFile::at(fd)?;
        let mut numbers = vec![fd];
        let mut all = listed();
        if all.is_empty() {
            all = self.open_numbers();
        }
        for number in all {
            let Some(other) = OpenFile::at(number) else { continue };
            if number != fd && other.has_file_and_mode_of(&this) {
                // Two descriptions of one pipe end (a FIFO, or a name in /proc, opened twice)
                // cannot be told apart here. Moving them as one is harmless unless calls on one
                // of them wait where those on the other do not.
                let entry_of = self.table.entry(number)?;
                if (other.flags ^ this.flags).contains(OFlags::NONBLOCK) {
                    entry.was_refused();
                    entry_of.was_refused();
                    return None;
                }
                numbers.push(number);
            }
        }
        let is_fixed = |number: &i32| self.table.known(*number).is_some_and(|e| e.has(mark::FIXED));
        (!numbers.iter().any(is_fixed)).then_some(numbers)
    }
}

/// Numbers that are not open, one after another, behind which none is looked for: a new descriptor
/// gets the lowest.
const GAP: i32 = 1024;

impl Library {
    /// Numbers that are open, found one by one: up to the last that the library has been told of,
    /// and some further. By a thread that has the program's table.
    pub(crate) fn open_numbers(&self) -> Vec<i32> {
        let is_open = |fd: i32| kernel::at(fd).is_ok_and(|fd| rustix::io::fcntl_getfd(fd).is_ok());
        let mut end = self.table.end().saturating_add(GAP);
        let mut open = Vec::new();
        let mut fd = 0;
        while fd < end {
            if is_open(fd) {
                open.push(fd);
                end = end.max(fd.saturating_add(GAP));
            }
            fd += 1;
        }
        open
    }
}

/// What the kernel says of an open descriptor.
struct OpenFile {
    file: Stat,
    flags: OFlags,
}

impl OpenFile {
    fn at(fd: i32) -> Option<Self> {
        let fd = kernel::at(fd).ok()?;
        Some(Self { file: rustix::fs::fstat(fd).ok()?, flags: rustix::fs::fcntl_getfl(fd).ok()? })
    }

    fn has_file_and_mode_of(&self, other: &Self) -> bool {
        let mode = |of: &Self| of.flags & OFlags::ACCMODE;
        let is_same =
            self.file.st_dev == other.file.st_dev && self.file.st_ino == other.file.st_ino;
        is_same && mode(self) == mode(other)
    }
}

#[cfg(test)]
mod tests {
    use crate::process::library::library;
    use rustix::fd::AsRawFd;

    #[test]
    fn open_numbers_are_those_that_the_kernel_lists() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let far = rustix::io::fcntl_dupfd_cloexec(&file, 700).unwrap();
        let found = library().open_numbers();
        let has = |fd: i32| found.contains(&fd);
        assert!(has(file.as_raw_fd()) && has(far.as_raw_fd()));
        assert!(found.iter().all(|fd| *fd >= 0) && found.is_sorted());
        let number = far.as_raw_fd();
        drop(far);
        assert!(!library().open_numbers().contains(&number));
    }
}
