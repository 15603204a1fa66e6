//! Calls of a program that has made few so far: the kernel serves them, and the library stays
//! uninitialized.
//!
//! Most programs of a shell script open a few files, write to one pipe, and end. The library has
//! nothing to do for them: a session moves after many more calls than are made here. So while the
//! guard is untouched (`guard::is_untouched`), a number of calls on descriptors that cannot move,
//! and a smaller number on those that can, go to the kernel and are not counted.
//!
//! A thread that waits in such a call when another one initializes the library is not known to it.
//! So the descriptor of each such call is noted while the call lasts ([`waiting`]), and stays in
//! the kernel from the initialization on. Nothing here needs relocation (`relocation`). Not here:
//! the state of the guard (`guard`), the routes of later calls (`transfer`).

use crate::guard;
use crate::raw::{self, Kernel};
use crate::shrinking;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Calls on descriptors that cannot move. Each costs an fstat(2); after these the library's own
/// memory of such descriptors is cheaper.
const FILE_CALLS: u32 = 64;
/// Data calls on pipes and sockets: half of the least number of calls after which a session is hot
/// by default.
const SESSION_CALLS: u32 = 16;
/// Data calls that can be under way at once.
const AT_ONCE: usize = 4;
/// No descriptor.
const NONE: c_int = -1;

/// The number of calls on descriptors that cannot move.
#[unsafe(link_section = ".data.start")]
static FILES: AtomicU32 = AtomicU32::new(0);
/// The number of data calls on pipes and sockets.
#[unsafe(link_section = ".data.start")]
static SESSIONS: AtomicU32 = AtomicU32::new(0);
/// The descriptors of the data calls that are under way.
#[unsafe(link_section = ".data.start")]
static WAITING: [AtomicI32; AT_ONCE] = [const { AtomicI32::new(NONE) }; AT_ONCE];

/// Returns true if `fd` is a pipe, a fifo or a socket.
pub(crate) fn could_move(fd: c_int) -> bool {
    matches!(raw::mode(fd as usize) & libc::S_IFMT, libc::S_IFIFO | libc::S_IFSOCK)
}

/// Returns true for calls by number that programs make which stay small. Like the C library's
/// functions of the same names, they ask themselves whether the guard is open, and until then need
/// no relocation.
pub(crate) fn are_among(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(number, libc::SYS_open | libc::SYS_dup2) {
        return true;
    }
    if shrinking::is_one(number) {
        return true;
    }
    matches!(
        number,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_close
            | libc::SYS_dup
            | libc::SYS_dup3
            | libc::SYS_fcntl
            | libc::SYS_ioctl
            | libc::SYS_openat
            | libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_mremap
            | libc::SYS_madvise
            | libc::SYS_prctl
            | libc::SYS_prlimit64
            | libc::SYS_execve
            | libc::SYS_exit_group
    )
}

/// Has every data call on a pipe or a socket counted from the first one on.
pub(crate) fn count_all() {
    SESSIONS.store(SESSION_CALLS, Ordering::Relaxed);
}

/// As `guard::is_open`, for a call that concerns the library only if `fd` can move or is the
/// library's own. For other descriptors a library that is not initialized stays so.
#[inline(always)]
pub(crate) fn is_open_for(fd: c_int) -> bool {
    guard::is_wide_open() || is_open_for_asked(fd)
}

#[cold]
#[inline(never)]
fn is_open_for_asked(fd: c_int) -> bool {
    let is_for_kernel = guard::is_untouched() && is_within(&FILES, FILE_CALLS) && !could_move(fd);
    !is_for_kernel && guard::is_open()
}

/// Makes a data call on `fd` by `kernel` if the library can stay uninitialized for it. Returns its
/// result.
#[cold]
#[inline(never)]
pub(crate) fn pass(fd: c_int, kernel: impl Kernel) -> Option<isize> {
    if !guard::is_untouched() {
        return None;
    }
    if !could_move(fd) {
        return is_within(&FILES, FILE_CALLS).then(kernel);
    }
    let note = note(fd)?;
    // There is no guard value that removes the note: a thread that is cancelled in the call must
    // have nothing to drop. Then the note stays, and with it the descriptor in the kernel.
    let result = kernel();
    note.store(NONE, Ordering::SeqCst);
    Some(result)
}

/// Notes a data call on `fd`, if the library is still uninitialized after that.
fn note(fd: c_int) -> Option<&'static AtomicI32> {
    if !is_within(&SESSIONS, SESSION_CALLS) {
        return None;
    }
    let is_taken = |note: &&AtomicI32| {
        note.compare_exchange(NONE, fd, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    };
    let note = WAITING.iter().find(is_taken)?;
    // SYNC: the note is written before the guard is read; `waiting` is called after the guard has
    // changed. So one of the two sees the other.
    if guard::is_untouched() {
        return Some(note);
    }
    note.store(NONE, Ordering::SeqCst);
    None
}

/// Iterates over the descriptors of data calls that the library does not know of. The guard has
/// been changed before.
pub(crate) fn waiting() -> impl Iterator<Item = c_int> {
    WAITING.iter().map(|note| note.load(Ordering::SeqCst)).filter(|fd| *fd != NONE)
}

/// Counts a call. Returns false once there have been `limit`.
fn is_within(count: &AtomicU32, limit: u32) -> bool {
    count.load(Ordering::Relaxed) < limit && count.fetch_add(1, Ordering::Relaxed) < limit
}
