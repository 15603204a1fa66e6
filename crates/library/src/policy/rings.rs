//! io_uring, as far as sessions go: what is submitted for one sends it home, and while the process
//! has a ring that nobody sees into all stay there.
//!
//! The kernel serves a ring's submissions on its own socket, past the library: a receive would wait
//! for ever for bytes that are in shared memory. Which rings are seen into the shell knows
//! ([`crate::Host::sees_ring`]). Of others nobody tells, nor of their making: so before an offer,
//! and now and then while sessions are away, the protocol thread looks which descriptors are rings.
//! What was submitted on such a ring before that is in the kernel and goes on there as soon as the
//! sessions are home: the peers give the kernel what it waits for. Not seen at all are rings
//! without a descriptor in this process, of another process or of
//! `IORING_SETUP_REGISTERED_FD_ONLY`, past the C library.

use crate::fds::table::{FdEntry, mark};
use crate::host::kernel;
use crate::host::lock::lock;
use crate::host::look::Direct;
use crate::host::numbers;
use crate::process::deferred::Telling;
use crate::process::library::Library;
use core::sync::atomic::Ordering;
use rustix::fs::FileType;
use sojourn_session::{KindT, ReasonT};

/// Numbers that are not open, one after another, behind which no ring is looked for: a new
/// descriptor gets the lowest.
const GAP: u32 = 256;

impl Library {
    /// Something is submitted for `fd`: its session is the kernel's from now on.
    pub fn ring_uses(&self, fd: i32) {
        let Some(entry) = self.table.entry(fd) else { return };
        if entry.kept_for().is_some() && entry.session.load(Ordering::SeqCst) == 0 {
            return;
        }
        if entry.has(mark::ALIASED) {
            let others = numbers::briefly(|| self.numbers_of(fd, entry, &mut Direct::here()));
            let others = others.unwrap_or_default();
            others.into_iter().for_each(|other| self.go_home(other, ReasonT::Operation, true));
        }
        self.set_shared(fd);
        self.go_home(fd, ReasonT::Operation, true);
    }

    /// The process has a ring that nobody sees into: all that is away comes home. With `is_hidden`
    /// it may have no descriptor by which it can be found, and nothing moves any more.
    pub fn ring_unseen(&self, is_hidden: bool) {
        if !self.policy.is_forbidden() && (is_hidden || self.away() > 0) {
            self.all_home(ReasonT::Ring, is_hidden);
        }
    }

    /// There is a ring of which submissions are seen afterwards only. What may be in one comes
    /// home.
    pub fn ring_polled(&self) {
        let is_one = |fd: &i32| self.session_of(*fd).is_some_and(|of| may_be_file(*fd, of.kind()));
        let found: Vec<i32> = self.table.with_sessions().map(|(fd, _)| fd).filter(is_one).collect();
        self.go_home_together(&found, ReasonT::Ring);
    }

    /// The memory of what may be a ring at `fd` is going to be mapped.
    pub fn ring_mapped(&self, fd: i32) {
        if let Some(engine) = self.engine()
            && is_ring(fd)
            && !self.host().sees_ring(fd)
        {
            // What is about to join does not.
            lock(&engine.rings).note();
            drop(lock(&engine.joining));
            self.ring_unseen(false);
        }
    }

    /// Whether `fd` stays in the kernel because of a ring; for now: without the ring it may move.
    pub(crate) fn stays_for_rings(&self, fd: i32, entry: &FdEntry, kind: KindT) -> bool {
        let Some(engine) = self.engine() else { return true };
        let is_found = lock(&engine.rings).look_for_offer(|| self.has_ring_unseen())
            || self.host().has_polled_ring() && may_be_file(fd, kind);
        if is_found {
            entry.keep_for_now(ReasonT::Ring);
            self.tell_kept(fd, entry, Telling::Now);
        }
        is_found
    }

    /// Whether there may be a ring that nobody sees into.
    pub(crate) fn has_ring_unseen(&self) -> bool {
        self.host().has_ring_library() || self.has_unseen_ring()
    }

    /// Whether there is a ring among the process's descriptors that nobody sees into. Opens none
    /// itself.
    fn has_unseen_ring(&self) -> bool {
        let (mut fd, mut closed) = (0, 0);
        while closed < GAP && fd < i32::MAX {
            let is_away = |entry: &FdEntry| entry.session.load(Ordering::Relaxed) != 0;
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

/// Whether a program may use it as a file: a pipe, or a standard stream.
fn may_be_file(fd: i32, kind: KindT) -> bool {
    fd <= 2 || kind == KindT::Pipe
}

/// Whether what is open at `fd` is no file of any type, as rings are. `None`: nothing is open.
fn is_anonymous(fd: i32) -> Option<bool> {
    let found = rustix::fs::fstat(kernel::at(fd).ok()?).ok()?;
    Some(FileType::from_raw_mode(found.st_mode) == FileType::Unknown)
}

/// See proc(5): what the kernel calls it.
fn is_ring(fd: i32) -> bool {
    let target = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new());
    target.is_ok_and(|target| target.as_bytes() == b"anon_inode:[io_uring]")
}
