//! Calls by number that the kernel serves, above all those of the loader's guest in this process.
//!
//! # Theory of operation
//! No handler of the guest's runs while a call of its own is here: the handler may go on in another
//! context and leave this one for later (swapcontext(3)), and the calls of several contexts cannot
//! be nested on one stack. So the signal is put off until the call has ended (`deferred`), and a
//! call that waits ends at once. It has not begun (`RESTART`), or the kernel has interrupted it.
//!
//! Not here: waits of the library (`pause`, `host`).

use crate::raw;
use crate::tls::here;
use crate::{errno, pause, taken};
use core::sync::atomic::Ordering;
use libc::timeval;
use sojourn_abi::door::RESTART;

/// A system call that a program makes by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    pub(crate) number: i64,
    pub(crate) arguments: [usize; 6],
}

impl Numbered {
    /// Makes the call unchanged. Returns its result in the C manner: -1 and `errno` for an error.
    pub(crate) fn make(self) -> isize {
        if taken::is_taken() {
            return make(self.number, self.arguments);
        }
        // SAFETY: the program's own call, for the kernel to check.
        errno::kernel(unsafe { raw::call(self.number, self.arguments) })
    }
}

/// Makes a call of the guest's, unless a handler waits. Returns the kernel's result, or `RESTART`.
///
/// # Safety
/// As for the system call itself.
pub(crate) unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe { pause::unless_put_off(here(), number, arguments) }
}

/// As [`call`], for calls that the library has been told of: those that cannot wait are made in any
/// case. The result is in the C manner, with -1 and `errno` for an error.
pub(crate) fn make(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own call, for the kernel to check.
    errno::kernel(unsafe {
        match may_wait(number, arguments[1]) {
            true => call(number, arguments),
            false => raw::call(number, arguments),
        }
    })
}

/// Returns true if the call may wait for something.
fn may_wait(number: i64, second: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(
        number,
        libc::SYS_open | libc::SYS_creat | libc::SYS_select | libc::SYS_poll | libc::SYS_epoll_wait
    ) {
        return true;
    }
    let locks = [libc::F_SETLKW, libc::F_OFD_SETLKW].map(|command| command as usize);
    matches!(
        number,
        libc::SYS_preadv2
            | libc::SYS_pwritev2
            | libc::SYS_sendfile
            | libc::SYS_splice
            | libc::SYS_tee
            | libc::SYS_vmsplice
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_connect
            | libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_pselect6
            | libc::SYS_ppoll
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
    ) || limit_of(number).is_some()
        || number == libc::SYS_fcntl && locks.contains(&second)
}

/// Returns the socket option that limits the time of a data call.
fn limit_of(number: i64) -> Option<i32> {
    match number {
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg => Some(libc::SO_RCVTIMEO),
        libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg => Some(libc::SO_SNDTIMEO),
        _ => None,
    }
}

/// Notes that a call of the guest's begins.
#[inline(always)]
pub(crate) fn begin() {
    here().has_waited.store(0, Ordering::Relaxed);
}

/// Returns the result of a call for the guest.
#[inline(always)]
pub(crate) fn ended(number: i64, arguments: &[usize; 6], result: isize) -> isize {
    if result == -(libc::EINTR as isize) || result == -(RESTART as isize) {
        return interrupted(number, arguments, result);
    }
    result
}

/// Returns the result of a call that a handler has ended: `RESTART` if the kernel would have begun
/// it after the handler, or restarted it (signal(7)).
#[cold]
fn interrupted(number: i64, arguments: &[usize; 6], result: isize) -> isize {
    let thread = here();
    let has_begun = thread.has_waited.load(Ordering::Relaxed) != 0;
    // A call that has waited in the library, and was to go on in the kernel, has begun: others may
    // have seen its thread asleep.
    if result == -(RESTART as isize) && !has_begun {
        return result;
    }
    let is_ours = thread.restarts.swap(0, Ordering::Relaxed) != 0 || result == -(RESTART as isize);
    let restarts = is_ours && thread.handler_waits.load(Ordering::Relaxed) == 1;
    let Some(option) = limit_of(number).filter(|_| restarts) else {
        return -(libc::EINTR as isize);
    };
    let mut limit = timeval { tv_sec: 0, tv_usec: 0 };
    let is_limited = raw::option(arguments[0] as i32, option, &mut limit)
        && (limit.tv_sec, limit.tv_usec) != (0, 0);
    if is_limited { -(libc::EINTR as isize) } else { -(RESTART as isize) }
}
