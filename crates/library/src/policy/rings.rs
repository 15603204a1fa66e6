//! io_uring and sessions: a session named in a submission goes home, and while the process has a
//! ring whose submissions the shell cannot see all sessions stay home.
//!
//! The kernel serves a ring's submissions on its own socket, past the library: a receive would wait
//! for ever for bytes that are in shared memory. The shell knows the rings it sees into
//! ([`crate::Host::sees_ring`]). The making of others goes unnoticed: so before an offer, and now
//! and then while sessions are away, the protocol thread looks for rings among the descriptors. A
//! receive submitted on such a ring before that is in the kernel, and completes once the sessions
//! are home and their peers have put the bytes there. The look cannot find rings without a
//! descriptor in this process: another process's, and those made past the C library with
//! `IORING_SETUP_REGISTERED_FD_ONLY`.

use crate::fds::entry::{FdEntry, mark};
use crate::host::descriptors::in_table;
use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::deferred::NotifyWhen;
use crate::process::library::Library;
use core::sync::atomic::Ordering;
use rustix::fs::FileType;
use sojourn_session::{KindT, ReasonT};

/// Numbers not open, one after another, behind which the look ends: a new descriptor gets the
/// lowest free number.
const GAP: u32 = 256;

impl Library {
    /// Sends the session of `fd` home for good, because a submission names it.
    pub fn ring_uses(&self, fd: i32) {
        let Some(entry) = self.table.entry(fd) else { return };
        if entry.kept_for().is_some() && entry.session.load(Ordering::SeqCst).is_none() {
            return;
        }
        if entry.has(mark::ALIASED) {
            // Nothing is opened for the look: this thread has the program's table.
            let others = self.numbers_of(fd, entry, || self.open_numbers()).unwrap_or_default();
            others.into_iter().for_each(|other| self.go_home(other, ReasonT::Operation, true));
        }
        self.set_shared(fd);
        self.go_home(fd, ReasonT::Operation, true);
    }

    /// Sends all sessions home, because the process has a ring that the shell cannot see into. With
    /// `is_hidden` the ring may have no descriptor to be found by, and nothing moves any more.
    pub fn ring_unseen(&self, is_hidden: bool) {
        if !self.policy.is_forbidden() && (is_hidden || self.away() > 0) {
            self.all_home(ReasonT::Ring, is_hidden);
        }
    }

    /// Sends home the sessions that a submission may name as files: the kernel takes this ring's
    /// submissions before the shell sees them.
    pub fn ring_polled(&self) {
        let is_one = |fd: &i32| self.session_of(*fd).is_some_and(|of| may_be_file(*fd, of.kind()));
        let found: Vec<i32> = self.table.with_sessions().filter(is_one).collect();
        self.go_home_together(&found, ReasonT::Ring);
    }

    /// Notes that the program is about to map what may be a ring at `fd`.
    pub fn ring_mapped(&self, fd: i32) {
        if let Some(engine) = self.engine()
            && is_ring(fd)
            && !self.host().sees_ring(fd)
        {
            // A session that is about to join sees the note under the lock of `joining`, and stays.
            lock(&engine.rings).note();
            drop(lock(&engine.joining));
            self.ring_unseen(false);
        }
    }

    /// Returns true if `fd` stays in the kernel because of a ring. It may move once the ring is
    /// gone.
    pub(crate) fn stays_for_rings(&self, fd: i32, entry: &FdEntry, kind: KindT) -> bool {
        let Some(engine) = self.engine() else { return true };
        let is_found = lock(&engine.rings).look_for_offer(|| self.has_ring_unseen())
            || self.host().has_polled_ring() && may_be_file(fd, kind);
        if is_found {
            entry.keep_for_now(ReasonT::Ring);
            self.tell_kept(fd, entry, NotifyWhen::Now);
        }
        is_found
    }

    /// Returns true if there may be a ring that the shell cannot see into.
    pub(crate) fn has_ring_unseen(&self) -> bool {
        self.host().has_ring_library() || self.has_unseen_ring()
    }

    /// Returns true if one of the process's descriptors is a ring that the shell cannot see into.
    /// Takes no number of the program's.
    fn has_unseen_ring(&self) -> bool {
        let (mut fd, mut closed) = (0, 0);
        // A number with a session is no ring; skipping the system call keeps the look short.
        while closed < GAP && fd < i32::MAX {
            let is_away = |entry: &FdEntry| entry.session.load(Ordering::Relaxed).is_some();
            let is_session = self.table.known(fd).is_some_and(is_away);
            let found = if is_session { Some(false) } else { is_anonymous(fd) };
            closed = if found.is_none() { closed + 1 } else { 0 };
            if found == Some(true) && is_ring(fd) && !self.host().sees_ring(fd) {
                return true;
            }
            fd += 1;
        }
        false
    }
}

/// Returns true if a program may use the descriptor as a file: a pipe, or a standard stream.
fn may_be_file(fd: i32, kind: KindT) -> bool {
    fd <= 2 || kind == KindT::Pipe
}

/// Returns true if the descriptor has no file type, as a ring's has none. `None`: nothing is open.
fn is_anonymous(fd: i32) -> Option<bool> {
    let found = rustix::fs::fstat(kernel::at(fd).ok()?).ok()?;
    Some(FileType::from_raw_mode(found.st_mode) == FileType::Unknown)
}

/// Returns true if `fd` is a ring, by the name that /proc gives it (proc(5)).
fn is_ring(fd: i32) -> bool {
    let look = |path: &str| rustix::fs::readlink(path, Vec::new());
    let target = in_table(rustix::thread::gettid(), &format!("fd/{fd}"), look);
    target.is_ok_and(|target| target.as_bytes() == b"anon_inode:[io_uring]")
}
