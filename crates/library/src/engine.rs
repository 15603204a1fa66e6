//! What belongs to one process alone and is made anew after `fork`: sessions, jobs for the protocol
//! thread, the board by which children ask for sessions.
//!
//! Not here: what the protocol thread does (`protocol`), and which descriptors are the library's
//! own (`own`).

use crate::Library;
use crate::bulk::Histories;
use crate::measured::Pasts;
use crate::net::Net;
use crate::own::Own;
use crate::rings::Looks;
use crate::session::{Pool, lock};
use crate::strangers::Strangers;
use crate::table::mark;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::{Deadline, Mapping};
use sojourn_stream::Stream;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, OnceLock};

/// Sessions, and sets, that children can ask for: as many sets as there can be.
pub(crate) const BOARD_SLOTS: u32 = 16_384;
/// How often is looked whether threads have ended.
const END_SLICE: Duration = Duration::from_micros(50);

/// How long threads of the library's own may take to end.
const END_LIMIT: Duration = Duration::from_secs(2);
/// The same for the kernel's count of them.
const COUNT_LIMIT: Duration = Duration::from_millis(100);

/// Work for the protocol thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// A descriptor is hot.
    Offer { fd: i32, version: u32, kind: KindT },
    /// A joined session is home. The stream is let go of by the protocol thread: the last view
    /// takes its mapping along.
    Left { local: u64, reason: ReasonT, sent: u64, received: u64, stream: Arc<Stream> },
    /// A session's flush was cut short: go on when there is room.
    Flush { slot: u32 },
    /// A UDP socket's session is to learn how to send there.
    AskWay { local: u64, to: IpAddr },
    /// An administrator wants what this process has of that inode away.
    Wanted { inode: u64 },
    /// The number's descriptor is about to be something else: forget the offer.
    Withdraw { fd: i32 },
    /// A descriptor is kept in the kernel: the server is to know why.
    Kept { fd: i32, version: u32 },
    /// The server is to be greeted now, whether there is something for it or not.
    Prepare,
}

/// What the protocol thread is to do, and how many it was ever given and has done.
#[derive(Debug, Default)]
struct Jobs {
    left: VecDeque<Job>,
    given: u64,
    done: u64,
}

/// One process's share of the library.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) pool: Pool,
    jobs: Mutex<Jobs>,
    jobs_done: Condvar,
    /// Streams that have ended here whose other sides are told once the kernel has: see `late`.
    pub(crate) ended: Mutex<Vec<Arc<Stream>>>,
    is_running: AtomicBool,
    /// There is a server, which has been greeted.
    is_served: AtomicBool,
    /// Somebody waits for [`Job::Prepare`].
    is_preparing: AtomicBool,
    /// Shared with children; see `fork`.
    pub(crate) board: OnceLock<Option<Mapping>>,
    /// Held while a descriptor's meaning changes and while a session joins.
    pub(crate) joining: Mutex<()>,
    pub(crate) pid: u32,
    pub(crate) next_local: AtomicU64,
    /// The descriptor of which the server is being sent a duplicate, which it closes before it
    /// answers; negative: none.
    pub(crate) offering: AtomicI32,
    /// Some stream has had both its ends in this process (`within`).
    pub(crate) has_within: AtomicBool,
    /// Sessions that are away.
    pub(crate) away: AtomicU32,
    /// Bytes of address space that their streams take.
    pub(crate) mapped: AtomicU64,
    /// Threads of the library's own, and their numbers.
    threads: AtomicU32,
    tids: Mutex<Vec<i32>>,
    /// They are to end.
    is_ending: AtomicBool,
    /// What carries sessions to other hosts, once there are such sessions; and whether its thread
    /// runs.
    pub(crate) net: OnceLock<Option<Net>>,
    pub(crate) has_net_thread: AtomicBool,
    /// What is remembered of bulk transfers.
    pub(crate) bulk: Mutex<Histories>,
    /// What is remembered of sessions on this host that were measured.
    pub(crate) measured: Mutex<Pasts>,
    /// Epoll sets that nobody has told of.
    pub(crate) strangers: Mutex<Strangers>,
    /// Rings that nobody sees into.
    pub(crate) rings: Mutex<Looks>,
    /// The library's own descriptors.
    pub(crate) own: Own,
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            pool: Pool::new(),
            jobs: Mutex::default(),
            jobs_done: Condvar::new(),
            ended: Mutex::new(Vec::with_capacity(crate::late::ENDED_MAX)),
            is_running: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            is_preparing: AtomicBool::new(false),
            board: OnceLock::new(),
            joining: Mutex::default(),
            pid: std::process::id(),
            next_local: AtomicU64::new(1),
            strangers: Mutex::default(),
            rings: Mutex::default(),
            offering: AtomicI32::new(-1),
            has_within: AtomicBool::new(false),
            away: AtomicU32::new(0),
            mapped: AtomicU64::new(0),
            threads: AtomicU32::new(0),
            tids: Mutex::default(),
            is_ending: AtomicBool::new(false),
            net: OnceLock::new(),
            has_net_thread: AtomicBool::new(false),
            bulk: Mutex::default(),
            measured: Mutex::default(),
            own: Own::default(),
        })
    }

    /// Gives the protocol thread something to do, for when it is next awake:
    /// [`Engine::ring_if_left`] comes next.
    pub(crate) fn leave(&self, job: Job) {
        let mut jobs = lock(&self.jobs);
        jobs.left.push_back(job);
        jobs.given += 1;
    }

    /// Wakes the protocol thread if there is something left for it.
    pub(crate) fn ring_if_left(&self) {
        if self.is_running() && !lock(&self.jobs).left.is_empty() {
            self.ring();
        }
    }

    /// Gives the protocol thread something to do. Starts it if need be.
    pub(crate) fn push(&'static self, library: &'static Library, job: Job) {
        self.leave(job);
        if !self.is_running() && library.host().in_handler() {
            // The C library allocates for a thread: the next job brings it.
            return;
        }
        if !self.is_running.swap(true, Ordering::SeqCst) {
            self.note_serving();
            // With several threads it is the protocol thread's to make, and to wait for.
            let is_ready = !self.is_single_threaded() || self.own.make_kit(false, None).is_some();
            if !is_ready {
                self.gives_up(library);
            } else if !self.spawn(library, "sojourn", move || crate::protocol::run(library, self)) {
                self.gives_up(library);
                library.is_prohibited();
            }
        }
        self.ring();
    }

    /// There is no protocol thread, or it cannot work: what it was to do is not done. It is tried
    /// again when something else is to be done.
    pub(crate) fn gives_up(&self, library: &Library) {
        self.is_running.store(false, Ordering::SeqCst);
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

    /// Starts a thread of the library's own.
    pub(crate) fn spawn(
        &'static self,
        library: &Library,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> bool {
        self.threads.fetch_add(1, Ordering::SeqCst);
        let counted = Box::new(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            lock(&self.tids).push(tid);
            work();
            lock(&self.tids).retain(|own| *own != tid);
            self.threads.fetch_sub(1, Ordering::SeqCst);
        });
        let has_begun = library.host().spawn(name, counted);
        if !has_begun {
            self.threads.fetch_sub(1, Ordering::SeqCst);
        }
        has_begun
    }

    /// Whether the program has one thread, as far as can be seen.
    pub(crate) fn is_single_threaded(&self) -> bool {
        self.programs_threads() == Some(1)
    }

    /// Threads of the process beside the library's own, if that can be seen. One that has ended
    /// counts if it was the first.
    pub(crate) fn programs_threads(&self) -> Option<u64> {
        threads_here()?.checked_sub(u64::from(self.threads.load(Ordering::SeqCst)))
    }

    /// Whether a thread is one of the library's own.
    pub(crate) fn is_own_thread(&self, tid: i32) -> bool {
        lock(&self.tids).contains(&tid)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Ends the library's own threads, and waits until the kernel knows nothing of them. What is
    /// away has gone home before.
    fn end_threads(&self) {
        let own = u64::from(self.threads.load(Ordering::SeqCst));
        if own == 0 || self.pid != std::process::id() {
            return;
        }
        let before = threads_here();
        self.is_ending.store(true, Ordering::SeqCst);
        self.ring();
        if let Some(net) = self.net.get().and_then(Option::as_ref) {
            net.wake();
        }
        let deadline = Deadline::after(END_LIMIT);
        while self.threads.load(Ordering::SeqCst) > 0 && !deadline.is_over() {
            std::thread::sleep(END_SLICE);
        }
        // The kernel counts a thread for a moment after it has done all that can be waited for,
        // which matters to a program of one thread. (One more may have been there that measures.)
        if before.is_some_and(|before| before <= own + 2) {
            let deadline = Deadline::after(COUNT_LIMIT);
            while threads_here() != Some(1) && !deadline.is_over() {
                std::thread::sleep(END_SLICE);
            }
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// Whether the server has been greeted, and is there as far as is known.
    pub(crate) fn is_served(&self) -> bool {
        self.is_running() && self.is_served.load(Ordering::SeqCst)
    }

    pub(crate) fn set_served(&self, is_served: bool) {
        self.is_served.store(is_served, Ordering::SeqCst);
    }

    pub(crate) fn begin_preparing(&self) {
        self.is_preparing.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_preparing(&self) -> bool {
        self.is_preparing.load(Ordering::SeqCst)
    }

    pub(crate) fn has_prepared(&self) {
        self.is_preparing.store(false, Ordering::SeqCst);
    }

    /// A descriptor of the program's that there is a job for.
    pub(crate) fn known_number(&self) -> Option<i32> {
        lock(&self.jobs).left.iter().find_map(|job| match job {
            Job::Offer { fd, .. } | Job::Kept { fd, .. } => Some(*fd),
            _ => None,
        })
    }

    /// What is to be done now, and its number for [`Engine::did_jobs`]. What comes while it is done
    /// rings the bell again.
    pub(crate) fn take_jobs(&self) -> (VecDeque<Job>, u64) {
        let mut jobs = lock(&self.jobs);
        (core::mem::take(&mut jobs.left), jobs.given)
    }

    /// The jobs up to that number are done.
    pub(crate) fn did_jobs(&self, number: u64) {
        lock(&self.jobs).done = number;
        self.jobs_done.notify_all();
    }

    /// Waits until the jobs that there are now are done, no longer than that.
    pub(crate) fn await_jobs(&self, limit: Duration) {
        let jobs = lock(&self.jobs);
        let given = jobs.given;
        let is_behind = |jobs: &mut Jobs| jobs.done < given;
        // Poisoned: nothing is done any more, and nothing depends on it.
        drop(self.jobs_done.wait_timeout_while(jobs, limit, is_behind));
    }

    /// Wakes the protocol thread.
    pub(crate) fn ring(&self) {
        // SYNC: while there is no bell the thread has not looked for jobs; it makes one before it
        // takes the lock of the jobs, under which this one was left.
        self.own.ring();
    }
}

/// Threads of this process. See proc(5): each is a folder there.
fn threads_here() -> Option<u64> {
    rustix::fs::stat("/proc/self/task").ok()?.st_nlink.checked_sub(2)
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
        self.engine().is_some_and(|engine| engine.threads.load(Ordering::SeqCst) > 0)
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
