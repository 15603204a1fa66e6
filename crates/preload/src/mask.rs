//! The calling thread's mask of blocked signals, past the C library, and writes without `SIGPIPE`.
//!
//! Sets are the kernel's, 64 bits, of which bit 0 is signal 1. Not here: the program's own changes
//! of its mask, which go to the C library, and signals that are put off while a thread is in this
//! library (`deferred`).

use crate::raw;
use core::ffi::c_int;
use libc::timespec;

/// Bytes of the kernel's set.
const SIZE: usize = size_of::<u64>();
const SIGPIPE: u64 = 1 << (libc::SIGPIPE - 1);

/// Changes the mask as `rt_sigprocmask(2)` does: `how` is `SIG_BLOCK`, `SIG_UNBLOCK` or
/// `SIG_SETMASK`. Returns the mask from before.
pub(crate) fn change(how: c_int, set: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = ((&raw const set) as usize, (&raw mut before) as usize);
    // SAFETY: both sets are local; only this thread's mask changes.
    unsafe { raw::call(libc::SYS_rt_sigprocmask, [how as usize, new, old, SIZE, 0, 0]) };
    before
}

/// Calls `write`, which returns true if it failed with `EPIPE`. The `SIGPIPE` that the kernel sends
/// the thread for it (pipe(7)) is taken back; one that the thread had pending before stays.
pub(crate) fn without_sigpipe(write: &mut dyn FnMut() -> bool) {
    let before = change(libc::SIG_BLOCK, SIGPIPE);
    let was_pending = pending() & SIGPIPE != 0;
    if write() && !was_pending {
        take(SIGPIPE);
    }
    change(libc::SIG_SETMASK, before);
}

fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: fills the local set.
    unsafe { raw::call(libc::SYS_rt_sigpending, [(&raw mut set) as usize, SIZE, 0, 0, 0, 0]) };
    set
}

/// Takes one of the signals of `set`, if one is pending.
fn take(set: u64) {
    let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    let (set, limit) = ((&raw const set) as usize, (&raw const at_once) as usize);
    // SAFETY: reads the local set and time; nothing is written for a null address.
    unsafe { raw::call(libc::SYS_rt_sigtimedwait, [set, 0, limit, SIZE, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    /// Writes to a pipe that nobody reads. Returns true if that failed with `EPIPE`.
    fn write_in_vain() -> bool {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        rustix::io::write(&writer, b"x") == Err(Errno::PIPE)
    }

    #[test]
    fn a_write_for_the_library_leaves_no_signal_and_takes_none_of_the_programs() {
        let before = change(libc::SIG_BLOCK, SIGPIPE);
        without_sigpipe(&mut write_in_vain);
        assert_eq!(pending() & SIGPIPE, 0);
        assert!(write_in_vain());
        assert_ne!(pending() & SIGPIPE, 0, "the kernel does send it");
        without_sigpipe(&mut write_in_vain);
        assert_ne!(pending() & SIGPIPE, 0, "that was there before");
        take(SIGPIPE);
        without_sigpipe(&mut || false);
        assert_eq!(pending() & SIGPIPE, 0);
        assert_ne!(change(libc::SIG_SETMASK, before) & SIGPIPE, 0, "the mask is as before");
    }
}
