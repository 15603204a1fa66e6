//! Streams of which both ends are sessions of this process; a server joins them if it is told to.
//!
//! Nearly all is as between two processes: each end has its session, its locks and its side of the
//! ring. One thing differs: a thread that waits for the peer to flush waits for the protocol thread
//! of its own process, and may be that thread. So the waiting thread does the flush itself, while
//! it holds no lock of its own session. Read `home` first.

use crate::host::lock::lock;
use crate::process::library::{Library, OwnSession};
use crate::session::Session;
use core::sync::atomic::Ordering;

impl OwnSession<'_> {
    /// Does for the other end's session what the peer's protocol thread would do, if that session
    /// is this process's.
    pub(crate) fn attend_other_end(self) {
        let library = self.library;
        if library.engine().is_some_and(|engine| engine.has_within.load(Ordering::Relaxed)) {
            library.attend_other_end_of(&self);
        }
    }
}

impl Library {
    fn attend_other_end_of(&self, session: &Session) {
        let stream = lock(&session.facts).stream;
        for fd in self.table.with_sessions() {
            if let Some(other) = self.session_of(fd)
                && other.slot() != session.slot()
                && lock(&other.facts).stream == stream
            {
                return other.attend();
            }
        }
    }
}
