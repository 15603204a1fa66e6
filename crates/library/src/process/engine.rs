//! The state that belongs to one process alone and is made anew after `fork`: sessions, jobs for
//! the protocol thread, the board by which children ask for sessions.
//!
//! Not here: the protocol thread's work (`control::protocol`), and the library's own descriptors
//! (`fds::own`).

use crate::fds::own::OwnDescriptors;
use crate::fds::slot::Slot;
use crate::host::Host;
use crate::host::lock::lock;
use crate::process::looks::{RingScans, UnmanagedSets};
use crate::process::remembered::{BulkHistories, TrialHistories};
use crate::session::pool::Pool;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use once_cell::race::OnceBox;
use rustix::process::Pid;
use sojourn_session::protocol::client::TokenT;
use sojourn_session::{HomeT, Inode, KindT, LocalNumber, ProcessId, ReasonT};
use sojourn_shm::{Deadline, Mapping};
use sojourn_stream::Stream;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex};

/// Sessions that children can ask for; epoll sets as well, of which there cannot be more.
pub(crate) const BOARD_SLOTS: u32 = 16_384;
/// Pause between two looks whether threads have ended.
const END_SLICE: Duration = Duration::from_micros(50);

/// How long threads of the library's own may take to end.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How long the kernel may go on counting them after that.
const COUNT_LIMIT: Duration = Duration::from_millis(100);

/// Streams that [`Engine::ended`] keeps at most; the peer of a further one is told at once.
pub(crate) const ENDED_MAX: usize = 64;

/// Work for the protocol thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// A descriptor is hot: offer it.
    Offer { fd: i32, version: u32, kind: KindT },
    /// A joined session is home: tell the server. The protocol thread also drops the stream,
    /// because dropping the last view unmaps the region.
    Left { local: LocalNumber, reason: ReasonT, sent: u64, received: u64, stream: Arc<Stream> },
    /// A session's flush was cut short: go on when the kernel has room.
    Flush { slot: Slot },
    /// A UDP socket has sent to a new address: ask the server for the route there.
    AskRoute { local: LocalNumber, to: IpAddr },
    /// An administrator wants this process's descriptors of that inode to be in that home.
    Wanted { inode: Inode, home: HomeT },
    /// The number is about to mean something else: withdraw the offer.
    Withdraw { fd: i32 },
    /// A descriptor is kept in the kernel: tell the server why.
    Kept { fd: i32, version: u32 },
    /// The protocol server has not answered: its sessions are lost.
    ServiceLost,
    /// The protocol server does not serve the session of that slot any more.
    ServiceEnded { slot: Slot },
    /// Take part in the session of an ancestor that the protocol server serves.
    Share { fd: i32, version: u32, token: TokenT },
    /// A program that was owed a signal about room sends to the kernel now: send it the signal.
    RoomCame { fd: i32, version: u32 },
    /// Code has come whose own system calls are to arrive at the shell.
    CodeCame,
    /// A socket has been corked: look at it from time to time.
    Corked,
    /// Greet the server now, even if there is nothing to tell it.
    Prepare,
}

/// The jobs that wait, and the numbers of jobs ever given and done.
#[derive(Debug, Default)]
struct Jobs {
    left: VecDeque<Job>,
    given: u64,
    done: u64,
}

/// Jobs that the protocol thread has taken.
#[derive(Debug)]
pub(crate) struct TakenJobs {
    pub(crate) jobs: VecDeque<Job>,
    /// Their number, for [`Engine::did_jobs`].
    pub(crate) number: u64,
}

/// The part of the library's state that belongs to one process.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) pool: Pool,
    jobs: Mutex<Jobs>,
    jobs_done: Condvar,
    /// Streams that have ended here and whose other sides are told after the kernel: see
    /// `deferred`.
    pub(crate) ended: Mutex<Vec<Arc<Stream>>>,
    is_running: AtomicBool,
    /// The number of the protocol thread; 0 until that runs.
    protocol_tid: AtomicU32,
    /// The server exists and has been greeted.
    is_served: AtomicBool,
    /// A thread waits for [`Job::Prepare`].
    is_preparing: AtomicBool,
    /// The pages shared with children; see `moves::fork`.
    pub(crate) board: OnceBox<Option<Mapping>>,
    /// Held while a descriptor's meaning changes and while a session joins.
    pub(crate) joining: Mutex<()>,
    pub(crate) pid: ProcessId,
    /// That number means nothing here: this is a child in another process name space.
    pub(crate) is_unseen: AtomicBool,
    pub(crate) next_local: AtomicU64,
    /// The descriptor of which a duplicate is on its way to the server, which closes it before it
    /// answers; negative: none.
    pub(crate) offering: AtomicI32,
    /// A stream has had both its ends in this process (`moves::within`).
    pub(crate) has_within: AtomicBool,
    /// A UDP socket has been away.
    pub(crate) has_datagrams: AtomicBool,
    /// The protocol thread looks at corks (`io::cork`).
    pub(crate) looks_at_corks: AtomicBool,
    /// The number of sessions that are away.
    pub(crate) away: AtomicU32,
    /// Bytes of address space that their streams take.
    pub(crate) mapped: AtomicU64,
    /// The number of threads of the library's own, and their thread ids.
    threads: AtomicU32,
    tids: Mutex<Vec<Pid>>,
    /// Those threads are to end.
    is_ending: AtomicBool,
    /// Functions that wake threads of the library's own which the bell does not wake.
    wakers: Mutex<Vec<fn()>>,
    /// The histories of bulk transfers, between their moves.
    pub(crate) bulk: Mutex<BulkHistories>,
    /// The trials of sessions on this host, between their moves.
    pub(crate) measured: Mutex<TrialHistories>,
    /// Epoll sets that were made past the library.
    pub(crate) unmanaged_sets: Mutex<UnmanagedSets>,
    /// Looks for io_urings that the shell does not see into.
    pub(crate) rings: Mutex<RingScans>,
    /// The library's own descriptors.
    pub(crate) own: OwnDescriptors,
}

impl Engine {
    /// Makes the state of this process. `forget` is called with numbers of the library's own that
    /// are about to be closed.
    pub(crate) fn new(forget: fn(i32)) -> Box<Self> {
        Box::new(Self {
            pool: Pool::new(),
            jobs: Mutex::default(),
            jobs_done: Condvar::new(),
            ended: Mutex::new(Vec::with_capacity(crate::process::engine::ENDED_MAX)),
            is_running: AtomicBool::new(false),
            protocol_tid: AtomicU32::new(0),
            is_served: AtomicBool::new(false),
            is_preparing: AtomicBool::new(false),
            board: OnceBox::new(),
            joining: Mutex::default(),
            pid: ProcessId::own(),
            is_unseen: AtomicBool::new(false),
            next_local: AtomicU64::new(1),
            unmanaged_sets: Mutex::default(),
            rings: Mutex::default(),
            offering: AtomicI32::new(-1),
            has_within: AtomicBool::new(false),
            has_datagrams: AtomicBool::new(false),
            looks_at_corks: AtomicBool::new(false),
            away: AtomicU32::new(0),
            mapped: AtomicU64::new(0),
            threads: AtomicU32::new(0),
            tids: Mutex::default(),
            is_ending: AtomicBool::new(false),
            wakers: Mutex::default(),
            bulk: Mutex::default(),
            measured: Mutex::default(),
            own: OwnDescriptors::new(forget),
        })
    }

    /// Leaves a job for the protocol thread without waking it; [`Engine::ring_if_left`] comes next.
    pub(crate) fn leave(&self, job: Job) {
        let mut jobs = lock(&self.jobs);
        jobs.left.push_back(job);
        jobs.given += 1;
    }

    /// Wakes the protocol thread if there is a job for it.
    pub(crate) fn ring_if_left(&self) {
        if self.is_running() && !lock(&self.jobs).left.is_empty() {
            self.ring();
        }
    }

    /// Starts a thread of the library's own, and counts it until it ends.
    pub(crate) fn spawn(
        &'static self,
        host: &dyn Host,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> bool {
        self.threads.fetch_add(1, Ordering::SeqCst);
        let counted = Box::new(move || {
            let tid = rustix::thread::gettid();
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

    /// Returns true if the program has one thread, as far as /proc shows. False does not mean that
    /// it has more: a thread of the library's own that is beginning or ending counts as its.
    pub(crate) fn is_single_threaded(&self) -> bool {
        self.programs_threads() == Some(1)
    }

    /// Counts the threads of the process without the library's own; `None` if /proc does not tell.
    /// An ended first thread counts, because it stays in /proc as a zombie.
    fn programs_threads(&self) -> Option<u64> {
        // A thread that is in this list exists until it has taken itself from it, for which it
        // needs this lock. So no own thread is subtracted that /proc does not count.
        let own = self.tids.try_lock().ok()?;
        threads_here()?.checked_sub(own.len() as u64)
    }

    /// Returns true if a thread of the library's own is beginning or ending: /proc may show it, but
    /// [`Engine::is_own_thread`] does not know it.
    pub(crate) fn has_unnamed_threads(&self) -> bool {
        self.threads.load(Ordering::SeqCst) as usize != lock(&self.tids).len()
    }

    /// Returns true if a thread is one of the library's own.
    pub(crate) fn is_own_thread(&self, tid: Pid) -> bool {
        lock(&self.tids).contains(&tid)
    }

    /// Adds a function that wakes a thread of the library's own, for [`Engine::end_threads`].
    pub(crate) fn add_waker(&self, wake: fn()) {
        lock(&self.wakers).push(wake);
    }

    /// Returns true if there are threads of the library's own.
    pub(crate) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::SeqCst) > 0
    }

    /// Notes that the protocol thread runs from now on; false: there was one before.
    pub(crate) fn begin_running(&self) -> bool {
        !self.is_running.swap(true, Ordering::SeqCst)
    }

    /// Notes that the calling thread is the protocol thread.
    pub(crate) fn runs_here(&self) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.protocol_tid.store(tid as u32, Ordering::SeqCst);
    }

    /// Returns the protocol thread's number, as soon as it runs.
    pub(crate) fn protocol_thread(&self) -> Option<Pid> {
        Pid::from_raw(self.protocol_tid.load(Ordering::SeqCst) as i32)
    }

    /// Notes that the protocol thread has ended.
    pub(crate) fn end_running(&self) {
        self.protocol_tid.store(0, Ordering::SeqCst);
        self.is_running.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// Ends the library's own threads, and waits until the kernel no longer counts them. The caller
    /// has sent all sessions home.
    pub(crate) fn end_threads(&self) {
        let own = u64::from(self.threads.load(Ordering::SeqCst));
        // In a `fork` child the threads counted are the parent's.
        if own == 0 || self.pid != ProcessId::own() {
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
        // The kernel counts a thread for a moment after everything that can be waited for, and a
        // program of one thread may notice that. A thread that measures may have been there beside
        // them.
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

    /// Returns true if the server has been greeted, and is there as far as is known.
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

    /// Returns a descriptor of the program's for which there is a job.
    pub(crate) fn known_number(&self) -> Option<i32> {
        lock(&self.jobs).left.iter().find_map(|job| match job {
            Job::Offer { fd, .. } | Job::Kept { fd, .. } => Some(*fd),
            _ => None,
        })
    }

    /// Takes the jobs that wait. A job that comes while they are done rings the bell again.
    pub(crate) fn take_jobs(&self) -> TakenJobs {
        let mut jobs = lock(&self.jobs);
        TakenJobs { jobs: core::mem::take(&mut jobs.left), number: jobs.given }
    }

    /// Notes that the jobs up to `number` are done.
    pub(crate) fn did_jobs(&self, number: u64) {
        lock(&self.jobs).done = number;
        self.jobs_done.notify_all();
    }

    /// Waits until the jobs given so far are done, for `limit` at most.
    pub(crate) fn await_jobs(&self, limit: Duration) {
        let jobs = lock(&self.jobs);
        let given = jobs.given;
        let is_behind = |jobs: &mut Jobs| jobs.done < given;
        // A poisoned lock means that the protocol thread has died; nothing depends on this wait.
        drop(self.jobs_done.wait_timeout_while(jobs, limit, is_behind));
    }

    /// Wakes the protocol thread.
    pub(crate) fn ring(&self) {
        // SYNC: without a bell the protocol thread has not looked for jobs yet; it makes the bell
        // before it takes the lock of the jobs, under which this job was left.
        self.own.ring();
    }
}

/// Counts the threads of this process: each is a folder in /proc/self/task (proc(5)), and a folder
/// has two links beside those of its folders.
fn threads_here() -> Option<u64> {
    let links = rustix::fs::stat("/proc/self/task").ok()?.st_nlink;
    // How wide the number is depends on the architecture.
    u64::from(u32::try_from(links).ok()?).checked_sub(2)
}
