//! The protocol thread's look whether the program has a thread left.
//!
//! Not here: the reason for that (`living`, which is to be read first).

use super::living::{ThreadWatch, has_first_ended};
use super::thread::Thread;
use crate::host::descriptors::Direct;
use rustix::io::Errno;
use rustix::process::Pid;

impl Thread {
    /// Ends the process if it has no thread of the program's.
    pub(super) fn look_for_life(&mut self) {
        if self.living.period(self.library).is_none() {
            return;
        }
        if self.living == ThreadWatch::First {
            if self.aside.call(|_| has_first_ended()) != Some(true) {
                return;
            }
            self.living = ThreadWatch::Unwatched;
        }
        let first = self.engine.pid.seen();
        let Some(all) = self.aside.call(|_| Direct::in_folder("/proc/self/task")) else { return };
        for tid in all.into_iter().filter_map(Pid::from_raw) {
            if Some(tid) == first || self.engine.is_own_thread(tid) {
                continue;
            }
            match self.aside.call(move |outside| outside.watch_thread(tid)) {
                // That thread has just ended.
                Some(Err(Errno::SRCH)) => {}
                watched => {
                    // One of the library's own that was beginning may have a name by now.
                    let is_sure =
                        !self.engine.has_unnamed_threads() && !self.engine.is_own_thread(tid);
                    if is_sure && watched == Some(Ok(())) {
                        self.living = ThreadWatch::Watched;
                    }
                    return;
                }
            }
        }
        // A thread that ends while the folder is read may cut the list short. Only the first
        // thread, a zombie, is left where the count agrees.
        if self.engine.is_single_threaded() {
            self.library.host().last_thread_ended();
        }
    }
}
