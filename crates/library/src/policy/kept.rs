//! The descriptors that stay in the kernel by this library's own decision, and the reasons:
//! recorded in the descriptor's entry, and told to the server for `sojourn ss`.
//!
//! The server is told when the calls on the descriptor would make it hot; at once, if there is a
//! protocol thread already. Nothing is told of a descriptor without counted calls (the C library's
//! stdio makes its calls past the shim). Not here: descriptors that the server itself refuses or
//! has seen go home, of which it keeps the reasons.

use crate::fds::entry::{FdEntry, mark};
use crate::host::kernel;
use crate::process::deferred::NotifyWhen;
use crate::process::engine::Job;
use crate::process::library::Library;
use crate::process::thresholds::kind_of;
use core::sync::atomic::Ordering;
use sojourn_session::{Inode, ReasonT};

/// A descriptor that stays in the kernel, as the server is told of it.
pub(crate) struct KeptDescriptor {
    pub(crate) inode: Inode,
    pub(crate) reason: ReasonT,
}

impl Library {
    /// Keeps `fd`, of which the library may know nothing yet, in the kernel until the number means
    /// something else.
    pub fn stays_in_kernel(&self, fd: i32, reason: ReasonT) {
        if let Some(entry) = self.table.entry(fd) {
            self.keep_in_kernel(fd, entry, reason, NotifyWhen::Deferred);
        }
    }

    /// Keeps `fd` in the kernel until the number means something else.
    pub(crate) fn keep_in_kernel(
        &self,
        fd: i32,
        entry: &FdEntry,
        reason: ReasonT,
        when: NotifyWhen,
    ) {
        if entry.kept_for() == Some(reason) {
            return;
        }
        entry.keep(reason);
        if self.engine().is_some_and(|engine| engine.is_running()) {
            self.tell_kept(fd, entry, when);
        }
    }

    /// Counts a data call on a kept descriptor of which the server has not been told.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_kept(&self, fd: i32, entry: &FdEntry) {
        let calls = entry.count(0).calls;
        // The first call reaches the initial thresholds; reading the configuration sets the real
        // ones.
        self.policy.config();
        if self.policy.is_forbidden() || kind_of(fd).is_none() {
            entry.unmark(mark::UNTOLD);
        } else if self.policy.is_hot(calls, 0) {
            self.tell_kept(fd, entry, NotifyWhen::Now);
        }
    }

    /// Has the server told why `fd` stays. Starts the protocol thread if need be.
    pub(crate) fn tell_kept(&self, fd: i32, entry: &FdEntry, when: NotifyWhen) {
        entry.unmark(mark::UNTOLD);
        let version = entry.version.load(Ordering::SeqCst);
        self.push_when(Job::Kept { fd, version }, when);
    }

    /// Returns the inode and the reason of a kept descriptor, if it could be a session.
    pub(crate) fn kept(&self, fd: i32) -> Option<KeptDescriptor> {
        let reason = self.table.known(fd)?.kept_for()?;
        kind_of(fd)?;
        let found = rustix::fs::fstat(kernel::at(fd).ok()?).ok()?;
        Some(KeptDescriptor { inode: Inode(found.st_ino), reason })
    }
}
