//! System calls that AArch64 does not have, because newer calls do the same: their numbers, and how
//! they are made there.
//!
//! On x86-64 this file is nothing but other names of `libc` and `raw`. Not here: such calls made by
//! the program's own numbers (`syscalls`), which the kernel refuses where it lacks them.

#[cfg(target_arch = "aarch64")]
pub(crate) use newer::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use {
    crate::raw::call,
    libc::{
        SYS_access, SYS_dup2, SYS_epoll_create, SYS_epoll_wait, SYS_open, SYS_pause, SYS_pipe,
        SYS_poll, SYS_readlink, SYS_stat,
    },
};

/// The newer calls in the place of the older ones.
#[cfg(target_arch = "aarch64")]
#[allow(non_upper_case_globals, reason = "the names that libc has on x86-64")]
mod newer {
    use crate::raw;
    use libc::timespec;

    /// The first of the numbers below, which stand for calls without a number. No kernel has it.
    const FIRST: i64 = 1 << 40;
    pub(crate) const SYS_access: i64 = FIRST;
    pub(crate) const SYS_dup2: i64 = FIRST + 1;
    pub(crate) const SYS_epoll_create: i64 = FIRST + 2;
    pub(crate) const SYS_epoll_wait: i64 = FIRST + 3;
    pub(crate) const SYS_open: i64 = FIRST + 4;
    pub(crate) const SYS_pause: i64 = FIRST + 5;
    pub(crate) const SYS_pipe: i64 = FIRST + 6;
    pub(crate) const SYS_poll: i64 = FIRST + 7;
    pub(crate) const SYS_readlink: i64 = FIRST + 8;
    pub(crate) const SYS_stat: i64 = FIRST + 9;

    /// The folder that relative paths begin at.
    const HERE: usize = libc::AT_FDCWD as usize;

    /// Makes a system call, which may be one of those above. Returns the kernel's result.
    ///
    /// # Safety
    /// As for the system call itself.
    pub(crate) unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
        let [a, b, c, d, ..] = arguments;
        let (number, arguments) = match number {
            SYS_access => (libc::SYS_faccessat, [HERE, a, b, 0, 0, 0]),
            // dup3(2) refuses equal numbers, of which dup2(2) only asks whether they are open.
            SYS_dup2 if a == b => {
                let open = raw::is_open(a as i32);
                return if open { a as isize } else { -(libc::EBADF as isize) };
            }
            SYS_dup2 => (libc::SYS_dup3, [a, b, 0, 0, 0, 0]),
            SYS_epoll_create if a as i32 <= 0 => return -(libc::EINVAL as isize),
            SYS_epoll_create => (libc::SYS_epoll_create1, [0; 6]),
            SYS_epoll_wait => (libc::SYS_epoll_pwait, [a, b, c, d, 0, 0]),
            SYS_open => (libc::SYS_openat, [HERE, a, b, c, 0, 0]),
            SYS_pause => (libc::SYS_ppoll, [0; 6]),
            SYS_pipe => (libc::SYS_pipe2, [a, 0, 0, 0, 0, 0]),
            // SAFETY: the caller answers for the call.
            SYS_poll => return unsafe { poll(a, b, c as i32) },
            SYS_readlink => (libc::SYS_readlinkat, [HERE, a, b, c, 0, 0]),
            SYS_stat => (libc::SYS_newfstatat, [HERE, a, b, 0, 0, 0]),
            number => (number, arguments),
        };
        // SAFETY: the caller answers for the call.
        unsafe { raw::call(number, arguments) }
    }

    /// Makes poll(2) with a limit of `ms` milliseconds; none if it is negative.
    ///
    /// # Safety
    /// As for the system call itself.
    unsafe fn poll(fds: usize, count: usize, ms: i32) -> isize {
        let mut limit =
            timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000) * 1_000_000 };
        let at = if ms < 0 { 0 } else { (&raw mut limit) as usize };
        // SAFETY: the caller answers for the array; the limit is local.
        unsafe { raw::call(libc::SYS_ppoll, [fds, count, at, 0, 0, 0]) }
    }
}
