//! What belongs to one process alone and is made anew after `fork`: sessions, jobs for the protocol
//! thread, the board by which children ask for sessions.
//!
//! Not here: what the protocol thread does (`protocol`), and which descriptors are the library's
//! own (`own`).

use crate::fds::own::Own;
use crate::host::Host;
use crate::host::lock::lock;
use crate::process::looks::{Looks, UnmanagedSets};
use crate::process::remembered::{Histories, Pasts};
use crate::session::pool::Pool;
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

/// Streams of which [`Engine::ended`] keeps at most so many; those beyond that are told at once.
pub(crate) const ENDED_MAX: usize = 64;

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
    /// Streams that have ended here whose other sides are told once the kernel has: see `deferred`.
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
    /// How threads of the library's own are woken that the bell does not wake.
    wakers: Mutex<Vec<fn()>>,
    /// What is remembered of bulk transfers.
    pub(crate) bulk: Mutex<Histories>,
    /// What is remembered of sessions on this host that were measured.
    pub(crate) measured: Mutex<Pasts>,
    /// Epoll sets that nobody has told of.
    pub(crate) unmanaged_sets: Mutex<UnmanagedSets>,
    /// Rings that nobody sees into.
    pub(crate) rings: Mutex<Looks>,
    /// The library's own descriptors.
    pub(crate) own: Own,
}

impl Engine {
    /// `forget` is told of numbers of the library's own that are going to be closed.
    pub(crate) fn new(forget: fn(i32)) -> Box<Self> {
        Box::new(Self {
            pool: Pool::new(),
            jobs: Mutex::default(),
            jobs_done: Condvar::new(),
            ended: Mutex::new(Vec::with_capacity(crate::process::engine::ENDED_MAX)),
            is_running: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            is_preparing: AtomicBool::new(false),
            board: OnceLock::new(),
            joining: Mutex::default(),
            pid: std::process::id(),
            next_local: AtomicU64::new(1),
            unmanaged_sets: Mutex::default(),
            rings: Mutex::default(),
            offering: AtomicI32::new(-1),
            has_within: AtomicBool::new(false),
            away: AtomicU32::new(0),
            mapped: AtomicU64::new(0),
            threads: AtomicU32::new(0),
            tids: Mutex::default(),
            is_ending: AtomicBool::new(false),
            wakers: Mutex::default(),
            bulk: Mutex::default(),
            measured: Mutex::default(),
            own: Own::new(forget),
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

    /// Starts a thread of the library's own.
    pub(crate) fn spawn(
        &'static self,
        host: &dyn Host,
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
        let has_begun = host.spawn(name, counted);
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

    /// Has threads of the library's own that are to end woken in this way, too.
    pub(crate) fn add_waker(&self, wake: fn()) {
        lock(&self.wakers).push(wake);
    }

    /// Whether there are threads of the library's own.
    pub(crate) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::SeqCst) > 0
    }

    /// There is a protocol thread from now on; false: there was one before.
    pub(crate) fn begin_running(&self) -> bool {
        !self.is_running.swap(true, Ordering::SeqCst)
    }

    /// There is none any more.
    pub(crate) fn end_running(&self) {
        self.is_running.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Ends the library's own threads, and waits until the kernel knows nothing of them. What is
    /// away has gone home before.
    pub(crate) fn end_threads(&self) {
        let own = u64::from(self.threads.load(Ordering::SeqCst));
        if own == 0 || self.pid != std::process::id() {
            return;
        }
        let before = threads_here();
        self.is_ending.store(true, Ordering::SeqCst);
        self.ring();
        lock(&self.wakers).iter().for_each(|wake| wake());
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
