//! Preparation for a process that is about to give up rights or its root folder: the protocol
//! thread starts, and greets the server, while that is possible.
//!
//! The library needs two threads and a connection with the server, and makes them when the first
//! session is hot. A program that has confined itself by then (`chroot`, a limit of no more
//! processes) may have neither. So the shell announces such a step, and the protocol thread starts
//! and greets the server before the program goes on. Nothing that leads out of the new root folder
//! is kept: a connection is no way to files. A `fork` child made after that starts with nothing,
//! and stays in the kernel. Not here: the calls that confine a program (the shell).

use crate::process::engine::{Engine, Job};
use crate::process::library::Library;
use core::time::Duration;
use sojourn_shm::Deadline;

/// How long the program may wait; a server that is there answers within a millisecond.
const LIMIT: Duration = Duration::from_millis(250);
const SLICE: Duration = Duration::from_micros(50);

impl Library {
    /// Makes threads and connection now, because the process may not be able to soon.
    pub fn prepare(&self) {
        // Reading the configuration decides if this process may have sessions at all.
        self.policy.config();
        let is_served = || self.engine().is_some_and(Engine::is_served);
        if self.policy.is_forbidden() || self.host().in_handler() || is_served() {
            return;
        }
        self.with_stack(|| {
            let Some(engine) = self.engine_or_new() else { return };
            engine.begin_preparing();
            self.push(Job::Prepare);
            let deadline = Deadline::after(LIMIT);
            while engine.is_running() && engine.is_preparing() && !deadline.is_over() {
                std::thread::sleep(SLICE);
            }
        });
    }
}
