//! The library's own threads as the rest of the library and the shell see them: started when there
//! is a job, ended when the program cannot have them.
//!
//! Not here: counting them (`process::engine`), their work (`protocol`, `remote::net`).

use crate::fds::entry::mark;
use crate::process::engine::{Engine, Job};
use crate::process::library::{Library, library};
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;

impl Engine {
    /// Gives the protocol thread a job, and starts the thread if need be.
    pub(crate) fn push(&self, library: &Library, job: Job) {
        self.leave(job);
        if !self.is_running() && library.host().in_handler() {
            // The C library allocates memory to start a thread, which a signal handler must not do
            // (signal-safety(7)). The job waits for the next one.
            return;
        }
        if self.begin_running() {
            self.note_serving();
            // In a program with several threads the protocol thread makes the kit itself, because
            // that may have to wait.
            let is_ready = !self.is_single_threaded() || self.own.make_kit(false, None).is_some();
            if !is_ready {
                self.gives_up(library);
            } else if !start_protocol_thread() {
                self.gives_up(library);
                library.is_prohibited();
            }
        }
        self.ring();
    }

    /// Drops the jobs, because there is no protocol thread or it cannot work. The next job tries
    /// again.
    pub(crate) fn gives_up(&self, library: &Library) {
        self.end_running();
        self.note_serving();
        for job in self.take_jobs().jobs {
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

/// Starts the protocol thread of this process.
fn start_protocol_thread() -> bool {
    // The thread keeps the library and its engine for as long as it runs, and the caller, any call
    // of the program's, has only borrowed them.
    let library = library();
    library.engine().is_some_and(|engine| {
        let run = move || crate::control::protocol::run(library, engine);
        engine.spawn(library.host(), "sojourn", run)
    })
}

impl Library {
    /// Stops all moves in this process, which is denied something that the library cannot do
    /// without: a thread, or a table of descriptors for one.
    pub(crate) fn is_prohibited(&self) {
        self.policy.forbid();
        self.host().show(ReasonT::Prohibited);
    }

    /// Ends the library's own threads, because the program is about to do something that needs a
    /// single thread, or would concern them. (Under a seccomp filter a thread is killed if it waits
    /// for a lock of the C library, as in malloc(3); a program of one thread would not have
    /// waited.) The caller has stopped all moves in this process, so the threads are not started
    /// again.
    pub fn end_threads(&self) {
        if let Some(engine) = self.engine() {
            engine.end_threads();
        }
    }

    /// Notes that the process may live on without its first thread; not every kernel reports the
    /// end of that thread.
    pub fn may_outlive_first(&self) {
        // SYNC: before the bell; the protocol thread looks after it.
        self.outlives_first.store(true, Ordering::SeqCst);
        if let Some(engine) = self.engine() {
            engine.ring();
        }
    }

    /// Returns true if there are threads of the library's own.
    pub fn has_threads(&self) -> bool {
        self.engine().is_some_and(Engine::has_threads)
    }

    /// Returns true if the calling thread is the program's only one.
    pub fn is_last_thread(&self) -> bool {
        self.engine().is_some_and(Engine::is_single_threaded)
    }

    /// Counts the sessions of this process that are away.
    pub fn away(&self) -> u32 {
        self.engine().map_or(0, |engine| engine.away.load(Ordering::SeqCst))
    }
}
