//! Several sessions that go home together: before `exec`, at the end of the process, when nothing
//! may be away any more.
//!
//! All streams are frozen first, so that all peers that owe something flush at the same time; then
//! this process waits for all of them, with one deadline. Not here: one session's way home
//! (`home`), and the time for all returns (`process::patience`).

use crate::moves::flush::{Rest, ReturnTerms};
use crate::process::deferred::NotifyWhen;
use crate::process::library::{Library, OwnSession};
use crate::process::patience::{PASS_LIMIT, Waits};
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;
use sojourn_shm::Deadline;

impl Library {
    /// Sends the sessions of all these numbers home, as [`Library::go_home`] does for one.
    pub(crate) fn go_home_together(&self, fds: &[i32], reason: ReasonT) {
        let until = self.patience.until(PASS_LIMIT);
        for &fd in fds {
            let Some(entry) = self.table.known(fd) else { continue };
            entry.restart_counts();
            if entry.session.load(Ordering::SeqCst).is_some() && self.own_session(entry).is_none() {
                self.recall_from_parent(fd, entry);
            }
        }
        self.home_together(fds, until, |session| {
            session.leave_within(ReturnTerms {
                reason,
                rest: Rest::of(reason, true),
                waits: Waits { room: until, ..Waits::NOT },
                when: NotifyWhen::Now,
            });
        });
    }

    /// Has `leave` send each of these sessions home without waiting for its peer, then waits for
    /// all peers.
    pub(crate) fn home_together(
        &self,
        fds: &[i32],
        until: Deadline,
        leave: impl Fn(OwnSession<'_>),
    ) {
        let sessions = || fds.iter().filter_map(|fd| self.session_of(*fd));
        sessions().for_each(leave);
        sessions().for_each(|session| session.await_peer(until));
    }
}

impl OwnSession<'_> {
    /// Waits, until `until` at most, for what the peer had sent.
    pub(crate) fn await_peer(self, until: Deadline) {
        if let Some(stream) = self.stream() {
            self.library.with_stack(|| self.await_rest(&stream, until));
        }
    }
}
