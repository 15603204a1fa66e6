//! The threads of a proxy that look at clients' objects and close them; each may be lost in that
//! for ever.
//!
//! A thread is made when there is work and none is free, up to a few. Not here: the choice of the
//! work (`proxy`).

use crate::identity::Diag;
use crate::inspected::Inspected;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::IoSlice;
use sojourn_ipc::ancillary;
use sojourn_session::ReasonT;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most threads: so many programs of a user may each hold one up before the others have to
/// wait.
const THREADS_MAX: usize = 8;
/// All threads count as lost when none has finished a job for so long while jobs wait.
const LOST_AFTER: Duration = Duration::from_secs(4);
/// The most jobs that may wait; they are descriptors of this process.
const JOBS_MAX: usize = 16 << 10;

/// A job that may take for ever.
#[derive(Debug)]
pub(super) enum Job {
    /// Look at the object and answer over the ticket.
    Look(OwnedFd, OwnedFd),
    Close(OwnedFd),
}

#[derive(Debug)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// Threads that have nothing to do, and all threads.
    free: usize,
    threads: usize,
    /// The time at which a thread last finished a job, or at which jobs began to wait again.
    finished: Instant,
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    has_come: Condvar,
    carries: bool,
}

#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    pub(super) fn new(carries: bool) -> Self {
        let jobs = Jobs { waiting: VecDeque::new(), free: 0, threads: 0, finished: Instant::now() };
        let shared = Shared { jobs: Mutex::new(jobs), has_come: Condvar::new(), carries };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn give(&self, job: Job) {
        let mut jobs = self.shared.lock();
        if jobs.waiting.is_empty() {
            jobs.finished = Instant::now();
        }
        jobs.waiting.push_back(job);
        if jobs.free >= jobs.waiting.len() || jobs.threads == THREADS_MAX {
            drop(jobs);
            return self.shared.has_come.notify_one();
        }
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("sojourn-looks".into());
        if thread.spawn(move || shared.work()).is_ok() {
            jobs.threads += 1;
        }
    }

    /// Returns true if no job waits. Jobs that threads have begun may never end, so they do not
    /// count.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().waiting.is_empty()
    }

    /// Returns true if no job will be done any more.
    pub(super) fn is_lost(&self) -> bool {
        let jobs = self.shared.lock();
        let is_late = !jobs.waiting.is_empty() && jobs.finished.elapsed() > LOST_AFTER;
        is_late || jobs.waiting.len() > JOBS_MAX
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        // Each thread has its own: a lost thread may have sent a question and never read the
        // answer.
        let mut diag = None;
        loop {
            let mut jobs = self.lock();
            jobs.free += 1;
            let job = loop {
                match jobs.waiting.pop_front() {
                    Some(job) => break job,
                    None => {
                        jobs = self.has_come.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            jobs.free -= 1;
            drop(jobs);
            self.act(job, &mut diag);
            self.lock().finished = Instant::now();
        }
    }

    fn act(&self, job: Job, diag: &mut Option<Diag>) {
        let (end, ticket) = match job {
            Job::Close(end) => return drop(end),
            Job::Look(end, ticket) => (end, ticket),
        };
        if diag.is_none() {
            *diag = Diag::new(self.carries).ok();
        }
        let Some(diag) = diag else {
            return answer(&ticket, &Inspected::refused(ReasonT::Resources));
        };
        // The end is closed before the answer: until then its peer would not see that the program
        // closes it.
        let inspected = Inspected::at(end, diag);
        diag.let_go();
        answer(&ticket, &inspected);
    }
}

/// Answers the server over the ticket.
pub(super) fn answer(ticket: &OwnedFd, inspected: &Inspected) {
    let bytes = inspected.to_bytes();
    let fds: Vec<BorrowedFd<'_>> = inspected.kept.iter().map(AsFd::as_fd).collect();
    // If this fails, the server has no answer, and closes the ticket when its time is up.
    let _ = ancillary::send(ticket, &[IoSlice::new(&bytes)], &fds);
}
