//! What belongs to one process alone and is made anew after `fork`: sessions, jobs for the protocol thread, the
//! board by which children ask for sessions.
//!
//! Not here: what the protocol thread does (`protocol`).

use crate::Library;
use crate::bulk::Histories;
use crate::net::Net;
use crate::rings::Looks;
use crate::session::{Pool, lock};
use crate::strangers::Strangers;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::process::Resource;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::{Deadline, Mapping};
use sojourn_stream::Stream;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

/// Sessions, and sets, that children can ask for: as many sets as there can be.
pub(crate) const BOARD_SLOTS: u32 = 16_384;
/// Numbers below the limit of open files that the library keeps to itself, if it can.
const HIDDEN: u64 = 256;

/// How long the protocol thread is waited for, and how often it is looked.
const QUIET_LIMIT: Duration = Duration::from_millis(200);
const QUIET_SLICE: Duration = Duration::from_micros(50);

/// Work for the protocol thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// A descriptor is hot.
    Offer { fd: i32, version: u32, kind: KindT },
    /// A joined session is home. The stream is let go of by the protocol thread: the last view takes its mapping along.
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
}

impl Job {
    /// A descriptor of the program's that it is about.
    fn number(&self) -> Option<i32> {
        match self {
            Self::Offer { fd, .. } | Self::Kept { fd, .. } => Some(*fd),
            _ => None,
        }
    }
}

/// One process's share of the library.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) pool: Pool,
    /// Rung for jobs, by children, and by the server; made by the protocol thread.
    doorbell: OnceLock<OwnedFd>,
    jobs: Mutex<VecDeque<Job>>,
    /// Streams that have ended here whose other sides are told once the kernel has: see `late`.
    pub(crate) ended: Mutex<Vec<Arc<Stream>>>,
    is_running: AtomicBool,
    /// The protocol thread sleeps, so it holds no lock, neither of ours nor of the C library's.
    pub(crate) is_asleep: AtomicBool,
    /// Shared with children; see `fork`.
    pub(crate) board: OnceLock<Option<Mapping>>,
    /// Held while a descriptor's meaning changes and while a session joins.
    pub(crate) joining: Mutex<()>,
    pub(crate) pid: u32,
    pub(crate) next_local: AtomicU64,
    /// The descriptor of which the server is being sent a duplicate, which it closes before it answers; negative: none.
    pub(crate) offering: AtomicI32,
    /// Sessions that are away.
    pub(crate) away: AtomicU32,
    /// The protocol thread's set, which the descriptors of sessions that are away are in; negative: none.
    pub(crate) watched: AtomicI32,
    /// What carries sessions to other hosts, once there are such sessions; and whether its thread runs.
    pub(crate) net: OnceLock<Option<Net>>,
    pub(crate) has_net_thread: AtomicBool,
    /// What is remembered of bulk transfers.
    pub(crate) bulk: Mutex<Histories>,
    /// Epoll sets that nobody has told of.
    pub(crate) strangers: Mutex<Strangers>,
    /// Rings that nobody sees into.
    pub(crate) rings: Mutex<Looks>,
    /// Numbers of the library's own descriptors.
    own: Mutex<Vec<i32>>,
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
            doorbell: OnceLock::new(),
            jobs: Mutex::default(),
            ended: Mutex::new(Vec::with_capacity(crate::late::ENDED_MAX)),
            is_running: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            board: OnceLock::new(),
            joining: Mutex::default(),
            pid: std::process::id(),
            next_local: AtomicU64::new(1),
            strangers: Mutex::default(),
            rings: Mutex::default(),
            offering: AtomicI32::new(-1),
            away: AtomicU32::new(0),
            watched: AtomicI32::new(-1),
            net: OnceLock::new(),
            has_net_thread: AtomicBool::new(false),
            bulk: Mutex::default(),
            own: Mutex::default(),
        })
    }

    /// Gives the protocol thread something to do, for when it is next awake: [`Engine::ring_if_left`] comes next.
    pub(crate) fn leave(&self, job: Job) {
        lock(&self.jobs).push_back(job);
    }

    /// Wakes the protocol thread if there is something left for it.
    pub(crate) fn ring_if_left(&self) {
        if self.is_running() && !lock(&self.jobs).is_empty() {
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
            if is_single_threaded() {
                self.make_doorbell();
            }
            let work = Box::new(move || crate::protocol::run(library, self));
            if !library.host().spawn("sojourn", work) {
                self.is_running.store(false, Ordering::SeqCst);
                self.note_serving();
                library.policy.forbid();
            }
        }
        self.ring();
    }

    /// Waits until the protocol thread has done what there is and sleeps, if it runs in this process.
    pub(crate) fn await_quiet(&self) {
        let deadline = Deadline::after(QUIET_LIMIT);
        while self.is_running() && self.pid == std::process::id() && !deadline.is_over() {
            // SYNC: in this order; pairs with the stores around its wait: awake comes before it takes jobs.
            if lock(&self.jobs).is_empty() && self.is_asleep.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(QUIET_SLICE);
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// What is to be done now. What comes while it is done rings the bell again.
    pub(crate) fn take_jobs(&self) -> VecDeque<Job> {
        core::mem::take(&mut lock(&self.jobs))
    }

    /// Wakes the protocol thread.
    pub(crate) fn ring(&self) {
        // SYNC: while there is none the thread has not looked for jobs; it makes one before it takes the lock of the jobs, under which this one was left.
        if let Some(doorbell) = self.doorbell() {
            // Full means that it is awake anyhow.
            let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Makes the doorbell, if there is none. The first descriptor far up makes the kernel enlarge the process's table, for which it has programs with
    /// several threads wait for some 20 ms: that is the protocol thread's to wait for, then, and not while one of ours has a low number.
    pub(crate) fn make_doorbell(&self) -> Option<&OwnedFd> {
        if let Some(doorbell) = self.doorbell() {
            return Some(doorbell);
        }
        let known = lock(&self.jobs).iter().find_map(Job::number);
        if let Some(fd) = known.and_then(|fd| crate::kernel::at(fd).ok()) {
            drop(rustix::io::fcntl_dupfd_cloexec(fd, hidden_from()));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let doorbell = self.keep(rustix::event::eventfd(0, flags).ok()?);
        Some(self.doorbell.get_or_init(|| doorbell))
    }

    pub(crate) fn doorbell(&self) -> Option<&OwnedFd> {
        self.doorbell.get()
    }

    /// Puts one of the library's own descriptors out of the way of the program's numbers.
    pub(crate) fn keep(&self, fd: OwnedFd) -> OwnedFd {
        let fd = hide(fd);
        lock(&self.own).push(fd.as_raw_fd());
        fd
    }

    /// One of [`Engine::keep`] is going to be closed.
    pub(crate) fn release(&self, fd: BorrowedFd<'_>) {
        lock(&self.own).retain(|own| *own != fd.as_raw_fd());
    }

    pub(crate) fn owns(&self, fd: i32) -> bool {
        lock(&self.own).contains(&fd)
    }

    /// The first of the library's own numbers from `from` on.
    pub(crate) fn next_own(&self, from: u32) -> Option<u32> {
        let own = lock(&self.own);
        own.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd >= from).min()
    }

    /// In a `fork` child: numbers of the parent's library, but for its doorbell. Nothing if a thread that is
    /// not here was changing them.
    pub(crate) fn numbers_to_close(&self) -> Vec<i32> {
        let own = self.own.try_lock().map(|own| own.clone()).unwrap_or_default();
        own.into_iter().filter(|fd| Some(*fd) != self.doorbell_number()).collect()
    }

    /// By which children ask for what is away.
    pub(crate) fn doorbell_number(&self) -> Option<i32> {
        self.doorbell().map(|fd| fd.as_raw_fd())
    }
}

impl Library {
    /// Sessions of this process that are away from the kernel.
    pub fn away(&self) -> u32 {
        self.engine().map_or(0, |engine| engine.away.load(Ordering::SeqCst))
    }
}

/// Whether this process has one thread, as far as can be seen. See proc(5): each is a folder there.
fn is_single_threaded() -> bool {
    rustix::fs::stat("/proc/self/task").is_ok_and(|tasks| tasks.st_nlink == 3)
}

/// A duplicate with a high number in place of `fd`; `fd` itself if that cannot be.
fn hide(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), hidden_from()).unwrap_or(fd)
}

/// The first of the high numbers.
fn hidden_from() -> i32 {
    let limit =
        rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20);
    limit.saturating_sub(HIDDEN).max(limit / 2) as i32
}
