//! New processes, for those that may not start any: the parent is asked for one.
//!
//! What the new process is follows from the line over which it is asked for, not from a message.
//! Not here: the parent's side (`generation`).

use super::line::{self, LineMessage, SPAWN, SPAWNED};
use crate::log::{self, Level};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time in which the parent answers: it waits for nobody.
const LIMIT: Duration = Duration::from_secs(10);

/// The line over which processes of one kind are asked for.
#[derive(Debug)]
pub(crate) struct Spawner(Mutex<OwnedFd>);

impl Spawner {
    pub(crate) fn new(line: OwnedFd) -> Self {
        Self(Mutex::new(line))
    }

    /// Has a process started with these descriptors as its standard input and output. Returns its
    /// process descriptor.
    ///
    /// # Errors
    /// There is no room for another process.
    pub(crate) fn spawn(&self, fds: &[BorrowedFd<'_>]) -> Result<OwnedFd, Errno> {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        line::tell(&*line, SPAWN, fds)?;
        line::wait(&*line, LIMIT);
        match line::hear(&*line) {
            LineMessage::Told(SPAWNED, mut fds) => fds.pop().ok_or(Errno::AGAIN),
            _ => {
                // Whose answer came next nobody could tell. The next generation can.
                log::say(Level::Error, format_args!("the parent does not start processes"));
                std::process::exit(1)
            }
        }
    }
}
