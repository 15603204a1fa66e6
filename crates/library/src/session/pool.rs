//! The pool of all sessions of the process, by slot.
//!
//! Sessions are never freed, only used again: see `session`. Not here: the state of one session.

use crate::fds::pool::SlotPool;
use crate::fds::slot::Slot;
use crate::session::Session;
use rustix::io::Errno;

/// The pool of all sessions of the process.
#[derive(Debug)]
pub(crate) struct Pool(SlotPool<Session, 64>);

impl Pool {
    pub(crate) const fn new() -> Self {
        Self(SlotPool::new())
    }

    /// Returns the session in a slot that was handed out.
    #[inline]
    pub(crate) fn session(&self, slot: Slot) -> Option<&Session> {
        self.0.get(slot)
    }

    /// Takes a session out of the pool for a new use.
    ///
    /// # Errors
    /// `EMFILE` if all are in use.
    pub(crate) fn take(&self) -> Result<&Session, Errno> {
        self.0.take(Session::new).and_then(|slot| self.0.get(slot)).ok_or(Errno::MFILE)
    }

    /// Puts a session back into the pool.
    pub(crate) fn give_back(&self, session: &Session) {
        self.0.give_back(session.slot());
    }
}
