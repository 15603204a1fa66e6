//! Streams both ends of which are sessions of this process: a server that is told so joins them
//! too.
//!
//! Nearly all is as between two processes: each end has its session, its locks and its side of the
//! ring. One thing is not: who waits for the peer to give the kernel what it owes waits for the
//! protocol thread of this very process, and may be that thread. So the waiter does it itself, with
//! no lock of its own session held. Read `home` first.

use crate::host::lock::lock;
use crate::process::library::Library;
use crate::session::Session;
use core::sync::atomic::Ordering;

impl Session {
    /// Does what is asked of the other end's session, if that is this process's, too.
    pub(crate) fn attend_other_end(&self) {
        let library = crate::process::library::library();
        if library.engine().is_some_and(|engine| engine.has_within.load(Ordering::Relaxed)) {
            library.attend_other_end_of(self);
        }
    }
}

impl Library {
    fn attend_other_end_of(&self, session: &Session) {
        let stream = lock(&session.facts).stream;
        for (fd, _) in self.table.with_sessions() {
            if let Some(other) = self.session_of(fd)
                && other.slot() != session.slot()
                && lock(&other.facts).stream == stream
            {
                return other.attend();
            }
        }
    }
}
