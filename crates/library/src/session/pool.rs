//! The pool of all sessions of the process, by slot.
//!
//! Sessions are never freed, only used again: see `session`. Not here: the state of one session.

use crate::fds::slot::Slot;
use crate::host::lock::lock;
use crate::session::Session;
use rustix::io::Errno;
use std::sync::{Mutex, OnceLock};

/// The pool of all sessions of the process.
pub(crate) struct Pool {
    // FORK: one process's.
    chunks: [OnceLock<Box<[Session]>>; Pool::CHUNKS],
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    slots: Vec<Slot>,
    made: u32,
}

impl Pool {
    const CHUNK: usize = 64;
    const CHUNKS: usize = 1024;

    pub(crate) const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; Self::CHUNKS],
            free: Mutex::new(Free { slots: Vec::new(), made: 0 }),
        }
    }

    /// Returns the session in a slot that was handed out.
    #[inline]
    pub(crate) fn session(&self, slot: Slot) -> Option<&Session> {
        let index = slot.index();
        self.chunks.get(index / Self::CHUNK)?.get()?.get(index % Self::CHUNK)
    }

    /// Takes a session out of the pool for a new use.
    ///
    /// # Errors
    /// `EMFILE` if all are in use.
    pub(crate) fn take(&self) -> Result<&Session, Errno> {
        let mut free = lock(&self.free);
        let slot = match free.slots.pop() {
            Some(slot) => slot,
            None => {
                free.made += 1;
                Slot::new(free.made - 1)
            }
        };
        let index = slot.index() / Self::CHUNK;
        let Some(chunk) = self.chunks.get(index) else {
            free.made -= 1;
            return Err(Errno::MFILE);
        };
        let first = (index * Self::CHUNK) as u32;
        let session = |at| Session::new(Slot::new(first + at));
        let chunk = chunk.get_or_init(|| (0..Self::CHUNK as u32).map(session).collect());
        chunk.get(slot.index() % Self::CHUNK).ok_or(Errno::MFILE)
    }

    /// Puts a session back into the pool.
    pub(crate) fn give_back(&self, session: &Session) {
        lock(&self.free).slots.push(session.slot());
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
