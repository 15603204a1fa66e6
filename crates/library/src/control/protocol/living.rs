//! A process whose own last thread has ended is to end, whatever threads of the library's there
//! are.
//!
//! The C library ends it when the last of its threads ends, and ours count as such. As a rule a
//! process ends when its first thread does. Where that may be otherwise
//! (`Library::may_outlive_first`) the protocol thread looks whether the first has ended, and then
//! watches another one, until there is none. Looking is `life`. Not here: what ending is (the
//! shell's `Host::last_thread_ended`).

use super::events::LIVING;
use crate::process::library::Library;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How often is looked where nothing tells of an end: that of the first thread no kernel tells, as
/// long as there are others.
const PERIOD: Duration = Duration::from_millis(20);
/// `PIDFD_THREAD`, pidfd_open(2), since Linux 6.9.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());

/// What is known of the program's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Living {
    /// The first has not ended, as far as is known.
    First,
    /// The first has ended, and the end of another one is waited for.
    Watched,
    /// The first has ended, and somebody must look who is left.
    Unwatched,
}

impl Living {
    /// How often to look.
    pub(super) fn period(self, library: &Library) -> Option<Duration> {
        let is_looked_for = match self {
            Self::First => library.outlives_first.load(Ordering::SeqCst),
            Self::Watched => false,
            Self::Unwatched => true,
        };
        is_looked_for.then_some(PERIOD)
    }
}

/// A descriptor that becomes readable when that thread has ended.
pub(super) fn watch_thread(set: BorrowedFd<'_>, tid: i32) -> Result<OwnedFd, Errno> {
    let thread = pidfd_open(Pid::from_raw(tid).ok_or(Errno::SRCH)?, THREAD)?;
    epoll::add(set, thread.as_fd(), EventData::new_u64(LIVING), EventFlags::IN)?;
    Ok(thread)
}

/// Whether the first thread is no more than what its parent waits for: state Z, proc_pid_stat(5).
pub(super) fn has_first_ended() -> bool {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}
