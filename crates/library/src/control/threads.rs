//! The library's own threads, as the rest of the library and the shell see them: started when there
//! is a job, ended when the program cannot have them.
//!
//! Not here: counting them (`engine`), what they do (`protocol`, `net`).

use crate::fds::table::mark;
use crate::process::engine::{Engine, Job};
use crate::process::library::Library;
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;

impl Engine {
    /// Gives the protocol thread something to do. Starts it if need be.
    pub(crate) fn push(&'static self, library: &'static Library, job: Job) {
        self.leave(job);
        if !self.is_running() && library.host().in_handler() {
            // The C library allocates for a thread: the next job brings it.
            return;
        }
        if self.begin_running() {
            self.note_serving();
            // With several threads it is the protocol thread's to make, and to wait for.
            let is_ready = !self.is_single_threaded() || self.own.make_kit(false, None).is_some();
            if !is_ready {
                self.gives_up(library);
            } else if !self.spawn(library.host(), "sojourn", move || {
                crate::control::protocol::run(library, self)
            }) {
                self.gives_up(library);
                library.is_prohibited();
            }
        }
        self.ring();
    }

    /// There is no protocol thread, or it cannot work: what it was to do is not done. It is tried
    /// again when something else is to be done.
    pub(crate) fn gives_up(&self, library: &Library) {
        self.end_running();
        self.note_serving();
        for job in self.take_jobs().0 {
            if let Job::Offer { fd, version, .. } = job
                && let Some(entry) = library.table.known(fd)
                && entry.version.load(Ordering::SeqCst) == version
            {
                entry.unmark(mark::OFFERED);
                entry.was_refused();
            }
        }
    }
}

impl Library {
    /// What the library cannot be without is not allowed to this process: no thread, or no table of
    /// descriptors for one. Nothing moves in it any more.
    pub(crate) fn is_prohibited(&self) {
        self.policy.forbid();
        self.host().show(ReasonT::Prohibited);
    }

    /// Ends the library's own threads: what the program is about to do can only be done with one
    /// thread, or would concern them. (A thread that may not make all system calls any more is
    /// killed if it must wait for a lock of the C library's, as in malloc(3), which without us
    /// nobody else would have.) Nothing moves in this process any more, so they are not started
    /// again.
    pub fn end_threads(&self) {
        if let Some(engine) = self.engine() {
            engine.end_threads();
        }
    }

    /// The process may come to live on without its first thread, of whose end not every kernel
    /// tells.
    pub fn may_outlive_first(&self) {
        // SYNC: before the bell; the protocol thread looks after it.
        self.outlives_first.store(true, Ordering::SeqCst);
        if let Some(engine) = self.engine() {
            engine.ring();
        }
    }

    /// Whether there are threads of the library's own.
    pub fn has_threads(&self) -> bool {
        self.engine().is_some_and(Engine::has_threads)
    }

    /// Whether the calling thread is the program's only one.
    pub fn is_last_thread(&self) -> bool {
        self.engine().is_some_and(Engine::is_single_threaded)
    }

    /// Sessions of this process that are away from the kernel.
    pub fn away(&self) -> u32 {
        self.engine().map_or(0, |engine| engine.away.load(Ordering::SeqCst))
    }
}
