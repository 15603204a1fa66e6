//! What stays in the kernel by this library's own decision, and why: recorded at the descriptor,
//! and told to the server for `sojourn ss`.
//!
//! It is told when the descriptor would be hot by the calls made on it; at once, if there is a
//! protocol thread already. What nobody makes calls on (the C library's stdio makes them inside
//! itself) nobody tells of. Not here: what the server refuses or has seen go home, which it
//! remembers by itself.

use crate::fds::table::{FdEntry, mark};
use crate::host::kernel;
use crate::process::deferred::Telling;
use crate::process::engine::Job;
use crate::process::library::Library;
use crate::process::thresholds::kind_of;
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;

impl Library {
    /// `fd` does not move any more, until the number means something else.
    pub(crate) fn keep_in_kernel(&self, fd: i32, entry: &FdEntry, reason: ReasonT, when: Telling) {
        if entry.kept_for() == Some(reason) {
            return;
        }
        entry.keep(reason);
        if self.engine().is_some_and(|engine| engine.is_running()) {
            self.tell_kept(fd, entry, when);
        }
    }

    /// A data call is made on what is kept and nobody knows of.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_kept(&self, fd: i32, entry: &FdEntry) {
        let (calls, _) = entry.count(0);
        // The first thresholds ask for the configuration.
        self.policy.config();
        if self.policy.is_forbidden() || kind_of(fd).is_none() {
            entry.unmark(mark::UNTOLD);
        } else if self.policy.is_hot(calls, 0) {
            self.tell_kept(fd, entry, Telling::Now);
        }
    }

    /// The server is to know why `fd` stays. Starts the protocol thread if need be.
    pub(crate) fn tell_kept(&self, fd: i32, entry: &FdEntry, when: Telling) {
        entry.unmark(mark::UNTOLD);
        let version = entry.version.load(Ordering::SeqCst);
        self.push_when(Job::Kept { fd, version }, when);
    }

    /// Inode and reason of a descriptor that is kept, if it could be a session.
    pub(crate) fn kept(&self, fd: i32) -> Option<(u64, ReasonT)> {
        let reason = self.table.known(fd)?.kept_for()?;
        kind_of(fd)?;
        let found = rustix::fs::fstat(kernel::at(fd).ok()?).ok()?;
        Some((found.st_ino, reason))
    }
}
