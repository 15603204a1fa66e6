//! Calls by which a program confines itself: `chroot`, limits of processes, another user. The
//! library makes before them what it could not make after.
//!
//! Not here: what that is (`sojourn_library::prepare`), and what ends the use of sessions
//! (`process`).

use crate::guard::{is_open, tell};
use crate::trampoline::{Interposer, asks_first};
use crate::{buffers, raw};
use core::ffi::c_int;

/// So many processes and threads a user may have who hardly can have the library's, too.
const FEW: u64 = 64;

/// The root folder is about to change: the server's socket may not be found in the new one.
pub(crate) fn root_changes() {
    if is_open() {
        tell(|library| library.prepare());
    }
}

/// `RLIMIT_NPROC` is about to be what is at `limit`, in this process.
pub(crate) fn limit_changes(resource: c_int, limit: *const libc::rlimit) {
    if resource != libc::RLIMIT_NPROC as c_int || limit.is_null() || !is_open() {
        return;
    }
    // SAFETY: plain data of the program's, which it leaves alone meanwhile.
    let limit = unsafe { buffers::structure(limit) };
    if limit.is_some_and(|limit| limit.rlim_cur < FEW) {
        tell(|library| library.prepare());
    }
}

/// The user is about to change: the limit of processes, which root is free of, may hold from then
/// on.
pub(crate) fn user_changes() {
    if is_open() && raw::most_processes() < FEW {
        tell(|library| library.prepare());
    }
}

unsafe extern "C" fn before_root(entry: &Interposer, _: &[usize; 6]) -> usize {
    root_changes();
    entry.next()
}

unsafe extern "C" fn before_limit(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    limit_changes(arguments[0] as c_int, arguments[1] as *const libc::rlimit);
    entry.next()
}

unsafe extern "C" fn before_limit_of(entry: &Interposer, arguments: &[usize; 6]) -> usize {
    limit_of_changes(arguments[0], arguments[1], arguments[2]);
    entry.next()
}

/// `prlimit`: of a process; 0 is this one.
pub(crate) fn limit_of_changes(process: usize, resource: usize, limit: usize) {
    if matches!(process as i32, 0) || process as i32 == raw::process_number() {
        limit_changes(resource as c_int, limit as *const libc::rlimit);
    }
}

unsafe extern "C" fn before_user(entry: &Interposer, _: &[usize; 6]) -> usize {
    user_changes();
    entry.next()
}

asks_first!(before_root; chroot = 0, pivot_root = 0);
asks_first!(before_limit; setrlimit = 0, setrlimit64 = 0);
asks_first!(before_limit_of; prlimit = 0, prlimit64 = 0);
asks_first!(before_user; setuid = 0, setreuid = 0, setresuid = 0);
