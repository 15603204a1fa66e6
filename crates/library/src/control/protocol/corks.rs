//! The protocol thread's looks at corked sockets: it wakes peers for what has been held back for
//! too long.
//!
//! Not here: what a cork does (`crate::io::cork`, `sojourn_stream`).

use super::thread::Thread;
use crate::io::cork::LOOKS;
use core::sync::atomic::Ordering;
use std::time::Instant;

impl Thread {
    pub(super) fn begin_looks_at_corks(&mut self) {
        self.engine.looks_at_corks.store(true, Ordering::SeqCst);
        self.corks_at.get_or_insert_with(|| Instant::now() + LOOKS);
    }

    /// Looks at the corks, if it is time. The looks end when no cork is in.
    pub(super) fn look_at_corks(&mut self) {
        if self.corks_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.corks_at = None;
        if self.one_is_corked() {
            return self.begin_looks_at_corks();
        }
        // SYNC: before the second look; pairs with `Library::corked`, which puts the cork in and
        // then looks whether it has to leave a job.
        self.engine.looks_at_corks.store(false, Ordering::SeqCst);
        if self.one_is_corked() {
            self.begin_looks_at_corks();
        }
    }

    fn one_is_corked(&self) -> bool {
        self.library.look_at_corks(self.joined.values().map(|joined| joined.slot))
    }
}
