//! The signals that end a command, received as events from a descriptor.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{FromRawFd as _, OwnedFd};
use std::io;
use std::time::Duration;

/// A descriptor of the signals that end a command, which are blocked in this process.
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals in this thread and in threads that it makes.
    pub(crate) fn block() -> io::Result<Self> {
        // SAFETY: all zero is a valid set of signals; the calls below fill it and read it, and
        // return a new descriptor.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                fd if fd < 0 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// Waits for a signal for at most `limit`. Returns true if one came.
    pub(crate) fn came(&self, limit: Duration) -> bool {
        let mut set = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        // A wait that another signal interrupts counts as no signal: the caller's next round waits
        // again.
        matches!(poll(&mut set, limit.as_ref()), Ok(1))
    }
}
