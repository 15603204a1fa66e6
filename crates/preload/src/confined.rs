//! Calls by which a program confines itself: `chroot`, limits on processes, a change of the user.
//! Before such a call the library makes the connections and threads that it could not make
//! afterwards.
//!
//! Not here: the preparation itself (`sojourn_library::prepare`), and the calls that end the use of
//! sessions (`process`).

use crate::guard::{is_open, tell};
use crate::trampoline::{Interposer, asks_first};
use crate::{buffers, raw};
use core::ffi::c_int;

/// Below this limit on the user's processes and threads there is hardly room for the library's
/// threads.
const FEW: u64 = 64;

/// Prepares for a new root folder, in which the server's socket may not exist.
pub(crate) fn root_changes() {
    if is_open() {
        tell(|library| library.prepare());
    }
}

/// Prepares for a new `RLIMIT_NPROC` of this process, which the program passes at `limit`.
pub(crate) fn limit_changes(resource: c_int, limit: *const libc::rlimit) {
    if resource != libc::RLIMIT_NPROC as c_int || limit.is_null() || !is_open() {
        return;
    }
    // SAFETY: plain data, which the program leaves alone during the call.
    let limit = unsafe { buffers::structure(limit) };
    if limit.is_some_and(|limit| limit.rlim_cur < FEW) {
        tell(|library| library.prepare());
    }
}

/// Prepares for a change of the user: root is exempt from `RLIMIT_NPROC` (getrlimit(2)), other
/// users are not.
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

/// Prepares for prlimit(2), if it concerns this process; 0 stands for the caller.
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
