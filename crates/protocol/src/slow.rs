//! The thread for slow work: calls that send a session home, and so may wait for the session
//! server.
//!
//! Serving threads and the watcher leave such work here, and go on with other clients. Work is done
//! in the order in which it came. Not here: the work (`server`).

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// The thread.
#[derive(Debug)]
pub(crate) struct Slow {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Slow {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let work = move || queue.into_iter().for_each(|job| job());
        let thread = std::thread::Builder::new().name("slow".into()).spawn(work)?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    /// Leaves work for the thread.
    pub(crate) fn leave(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            // The thread lives as long as this sender.
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Waits until all work is done, and ends the thread.
    pub(crate) fn end(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn work_is_done_in_order_and_to_the_end() {
        let slow = Slow::start().unwrap();
        let done = Arc::new(Mutex::new(Vec::new()));
        for number in 0..100 {
            let done = Arc::clone(&done);
            slow.leave(move || done.lock().unwrap().push(number));
        }
        slow.end();
        assert_eq!(*done.lock().unwrap(), (0..100).collect::<Vec<_>>());
        slow.leave(|| unreachable!("the thread has ended"));
    }
}
