//! Before the process gives up rights or its root folder: what a first session would need later is
//! made now.
//!
//! A library needs two threads and a connection with the server, and makes them when the first
//! session is hot. A program that has confined itself by then (`chroot`, a limit of no more
//! processes) may have neither. So the shell says beforehand that it is about to, and the protocol
//! thread starts and greets the server before it goes on. Nothing that leads out of the new root
//! folder is kept: a connection is no way to files. A `fork` child made after that begins with
//! nothing, and stays in the kernel. Not here: which calls confine (the shell).

use crate::process::engine::{Engine, Job};
use crate::process::library::Library;
use crate::process::library::library;
use core::time::Duration;
use sojourn_shm::Deadline;

/// How long the program may wait for it; a server that is there answers within a millisecond.
const LIMIT: Duration = Duration::from_millis(250);
const SLICE: Duration = Duration::from_micros(50);

impl Library {
    /// The process may not be able any more to start threads or to find the server, soon.
    pub fn prepare(&self) {
        // Whether it may have sessions at all.
        self.policy.config();
        let is_served = || self.engine().is_some_and(Engine::is_served);
        if self.policy.is_forbidden() || self.host().in_handler() || is_served() {
            return;
        }
        self.with_stack(|| {
            let Some(engine) = self.engine_or_new() else { return };
            engine.begin_preparing();
            library().push(Job::Prepare);
            let deadline = Deadline::after(LIMIT);
            while engine.is_running() && engine.is_preparing() && !deadline.is_over() {
                std::thread::sleep(SLICE);
            }
        });
    }
}
