//! The interface by which the library uses the shell around it (the preload shim, or a test).
//!
//! The library knows neither C nor signals. The shell reports handlers that have run, keeps
//! handlers out while the library holds locks, and knows which descriptors stdio uses. Read
//! `docs/understand/streams.md`, "Signals".

pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod epoll;
pub(crate) mod kernel;
pub(crate) mod lock;
pub mod numbers;
pub(crate) mod tcp_counts;

use core::sync::atomic::AtomicU32;
use core::time::Duration;
use epoll::EpollEvent;
use kernel::PollFd;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::process::Pid;
use sojourn_session::ReasonT;
use sojourn_shm::futex::{self, Woken};

/// The effect that signal handlers have on a wait during which they ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// No handler ran.
    None,
    /// A handler ran that wants interrupted calls restarted (`SA_RESTART`, sigaction(2)).
    Restart,
    /// A handler ran that ends the call with `EINTR`.
    Break,
}

/// What becomes of system calls that the program makes itself, past the C library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnCalls {
    /// The kernel serves them; the shell does not see them.
    Unseen,
    /// The shell sees them, but a thread may still be in one of before that concerns what was asked
    /// for.
    UnderWay,
    /// The shell sees them. Threads still wait for these epoll sets by calls of before.
    Seen(Vec<i32>),
}

/// The shell around the library, as the library calls it.
pub trait Host: Sync + core::fmt::Debug {
    /// Begins a wait: handlers that were put off run now, and others run while the thread sleeps by
    /// one of the calls of this trait. Those that arrive at other moments are put off, and end the
    /// wait. The caller holds no lock now, nor when it sleeps: a handler may use the same session,
    /// and may never return. Handlers that ran before are forgotten.
    fn wait_begins(&self);
    /// Ends a wait: handlers are put off again until the thread leaves the shell.
    fn wait_ends(&self);
    /// Tells which handlers ran since [`Host::wait_begins`]. One that was put off since then counts
    /// as one that restarts calls: the next wait, or the end of the call, runs it.
    fn interrupt(&self) -> Interrupt;
    /// Sleeps on a futex as [`futex::wait`] does; also ends, or does not begin, if a handler has
    /// run since [`Host::wait_begins`]. The kernel by itself restarts a wait without a time limit
    /// after a handler with `SA_RESTART` (signal(7)).
    fn futex_wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
        futex::wait(word, expected, timeout)
    }
    /// Tells where this thread sleeps while handlers are put off: for each that is, 0 is stored
    /// there, so that a futex wait for another value ends or does not begin. `None`: nowhere any
    /// more.
    fn sleeps_on(&self, _word: Option<&AtomicU32>) {}
    /// Returns true if this thread should leave the shell, or admit handlers, as soon as it can:
    /// one has been put off, or threads are being cancelled.
    fn is_wanted_outside(&self) -> bool {
        false
    }
    /// Runs `work` on a stack that is large enough, however small the caller's is. `work` must not
    /// wait between `wait_begins` and `wait_ends`: handlers have to run on the program's own stack.
    fn on_own_stack(&self, work: &mut dyn FnMut()) {
        work();
    }
    /// Calls `write`, which writes to a pipe, and returns true if that failed with `EPIPE`. The
    /// `SIGPIPE` of such a write is not the program's, and must not reach it.
    fn without_sigpipe(&self, write: &mut dyn FnMut() -> bool) {
        write();
    }
    /// Returns true if these buffers of the program's can be read: another thread or a handler may
    /// have unmapped them while this thread waited.
    fn can_read(&self, _bufs: &[IoSlice<'_>]) -> bool {
        true
    }
    /// Returns true if these buffers of the program's can still be written.
    fn can_write(&self, _bufs: &[IoSliceMut<'_>]) -> bool {
        true
    }
    /// Returns true if this thread may be in a signal handler. If so the library calls nothing that
    /// is not async-signal-safe (signal-safety(7)).
    fn in_handler(&self) -> bool {
        false
    }
    /// Returns true if a `FILE` of the C library has used the descriptor `fd`.
    fn stdio_uses(&self, fd: i32) -> bool;
    /// Has system calls that the program makes itself arrive at the shell, if that is possible.
    /// Tells what is under way for `numbers`. Called by a thread of the library's that has
    /// descriptors of its own.
    fn own_calls(&self, numbers: &[i32]) -> OwnCalls {
        let _ = numbers;
        OwnCalls::Unseen
    }
    /// Returns what is to be called once a session of this process has become hot, by a thread of
    /// the library's that has descriptors of its own.
    fn when_hot(&self) -> Option<extern "C" fn()> {
        None
    }
    /// Returns true if `fd` is an io_uring whose submissions the shell looks at.
    fn sees_ring(&self, _fd: i32) -> bool {
        false
    }
    /// Reports that the program closes the number, or puts something else there.
    fn number_closing(&self, _fd: i32) {}
    /// Returns true if there is an io_uring whose submissions the shell sees only after the kernel
    /// has taken them (`IORING_SETUP_SQPOLL`, io_uring_setup(2)), and which concern files only.
    fn has_polled_ring(&self) -> bool {
        false
    }
    /// Returns true if the process has loaded a library that makes rings past the C library.
    fn has_ring_library(&self) -> bool {
        false
    }
    /// Starts a thread of the library's own, with all signals blocked. The kernel alone serves the
    /// calls of that thread.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> bool {
        std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(work).is_ok()
    }
    /// Returns true if that thread of another process has certainly ended; it is not its first one,
    /// whose number a process keeps until its parent has waited for it.
    fn has_thread_ended(&self, _process: Pid, _thread: Pid) -> bool {
        false
    }
    /// Waits by `epoll_pwait2(2)`. Without a mask the thread keeps its own. The default is for
    /// hosts without signals: it ignores the mask, and rounds the timeout up to milliseconds.
    ///
    /// # Errors
    /// Those of `epoll_pwait2(2)`.
    fn epoll_wait(
        &self,
        epfd: i32,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let _ = mask;
        epoll::wait(epfd, events, timeout)
    }
    /// Waits by `ppoll(2)`, with the mask and the default of [`Host::epoll_wait`].
    ///
    /// # Errors
    /// Those of `ppoll(2)`.
    fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let _ = mask;
        kernel::poll_all(fds, timeout)
    }
    /// Ends the process after the last thread of the program has ended; a thread of the library
    /// calls this. Does not return.
    fn last_thread_ended(&self) -> ! {
        std::process::exit(0)
    }
    /// Shows `reason` to observers outside the process (`sojourn_session::notice`): nothing moves
    /// in this process any more.
    fn show(&self, _reason: ReasonT) {}
    /// Closes a number of the library's own, in a `fork` child.
    fn close(&self, fd: i32);
}

/// A host without signals and stdio, for tests and for embedding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Host for Plain {
    fn wait_begins(&self) {}
    fn wait_ends(&self) {}
    fn interrupt(&self) -> Interrupt {
        Interrupt::None
    }
    fn stdio_uses(&self, _fd: i32) -> bool {
        false
    }
    fn close(&self, _fd: i32) {}
}
