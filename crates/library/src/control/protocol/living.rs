//! The end of a process whose own last thread has ended, although threads of the library are left.
//!
//! The C library ends the process when the last of its threads ends, and the library's threads
//! count as such. As a rule a process ends with its first thread. Where that may be otherwise
//! (`Library::may_outlive_first`) the protocol thread looks whether the first thread has ended,
//! then watches another one, until none is left. Not here: the looking (`life`), and the ending
//! (the shell's `Host::last_thread_ended`).

use super::events::LIVING;
use crate::process::library::Library;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Pause between two looks where nothing reports an end: no kernel reports the end of a first
/// thread that others outlive.
const PERIOD: Duration = Duration::from_millis(20);
/// `PIDFD_THREAD`, pidfd_open(2), since Linux 6.9.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());

/// The state of the watch over the program's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadWatch {
    /// The first thread has not ended, as far as is known.
    First,
    /// The first thread has ended, and the end of another one is watched.
    Watched,
    /// The first thread has ended, and the protocol thread has to look which are left.
    Unwatched,
}

impl ThreadWatch {
    /// Returns the pause between two looks; `None` if no look is due.
    pub(super) fn period(self, library: &Library) -> Option<Duration> {
        let is_looked_for = match self {
            Self::First => library.outlives_first.load(Ordering::SeqCst),
            Self::Watched => false,
            Self::Unwatched => true,
        };
        is_looked_for.then_some(PERIOD)
    }
}

/// Opens a descriptor that becomes readable when that thread has ended, and adds it to `set`.
pub(super) fn watch_thread(set: BorrowedFd<'_>, tid: Pid) -> Result<OwnedFd, Errno> {
    let thread = pidfd_open(tid, THREAD)?;
    epoll::add(set, thread.as_fd(), EventData::new_u64(LIVING), EventFlags::IN)?;
    Ok(thread)
}

/// Returns true if the first thread is a zombie: state Z, proc_pid_stat(5).
pub(super) fn has_first_ended() -> bool {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}
