//! What the library needs from the shell around it (the preload shim, or a test).
//!
//! The library knows neither C nor signals. The shell tells it when a handler has run, keeps
//! handlers out while the library holds locks, and knows what stdio does. Read
//! `docs/understand/streams.md`, "Signals".

pub(crate) mod environment;
pub(crate) mod epoll;
pub(crate) mod kernel;
pub(crate) mod lock;
pub(crate) mod look;
pub mod numbers;

use core::time::Duration;
use epoll::EpollEvent;
use kernel::PollFd;
use rustix::io::Errno;
use sojourn_session::ReasonT;

/// What a signal handler that ran during a wait means for the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// None ran.
    None,
    /// One ran that wants interrupted calls restarted (`SA_RESTART`).
    Restart,
    /// One ran that ends the call with `EINTR`.
    Break,
}

/// The shell.
pub trait Host: Sync + core::fmt::Debug {
    /// A wait begins: handlers may run on this thread from now on. Forgets what ran before.
    fn wait_begins(&self);
    /// The wait is over: handlers are put off again until the shell is left.
    fn wait_ends(&self);
    /// What ran since `wait_begins`.
    fn interrupt(&self) -> Interrupt;
    /// Does `work` where it has stack enough, whatever the caller has. It must not wait between
    /// `wait_begins` and `wait_ends`: handlers are the program's stack's.
    fn on_own_stack(&self, work: &mut dyn FnMut()) {
        work();
    }
    /// Whether this thread may be in a signal handler, so that it must not do what POSIX does not
    /// allow there.
    fn in_handler(&self) -> bool {
        false
    }
    /// Whether a `FILE` of the C library has used this descriptor.
    fn stdio_uses(&self, fd: i32) -> bool;
    /// Whether the io_uring at that number is one whose submissions are looked at.
    fn sees_ring(&self, _fd: i32) -> bool {
        false
    }
    /// The program closes a number, or puts something else there.
    fn number_closing(&self, _fd: i32) {}
    /// Whether there is an io_uring whose submissions are only seen afterwards, and are about
    /// files.
    fn has_polled_ring(&self) -> bool {
        false
    }
    /// Whether a library is in the process that makes rings past the C library.
    fn has_ring_library(&self) -> bool {
        false
    }
    /// Starts a thread of the library's own: all signals blocked, its calls served by the kernel
    /// alone.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> bool {
        std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(work).is_ok()
    }
    /// `epoll_pwait2(2)`. With no mask the thread's own stays. The default knows no mask, for hosts
    /// without signals, and rounds the timeout up to milliseconds.
    ///
    /// # Errors
    /// The kernel's.
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
    /// `ppoll(2)`. As [`Host::epoll_wait`].
    ///
    /// # Errors
    /// The kernel's.
    fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let _ = mask;
        kernel::poll_all(fds, timeout)
    }
    /// The last thread of the program has ended; those of the library have called this. Does not
    /// return.
    fn last_thread_ended(&self) -> ! {
        std::process::exit(0)
    }
    /// Nothing moves in this process any more: whoever looks from outside is to see why
    /// (`sojourn_session::notice`).
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
