//! Bare system calls, and questions to the kernel that are built from them.
//!
//! A bare system call passes through no function of the C library, so it can neither call back into
//! this library nor act as a cancellation point. Not here: calls made for the program through the
//! next library's functions (`next`, `guard::kernel`).

use crate::older;
use sojourn_abi::loadable::soft_limit;
pub(crate) use sojourn_syscall::{call, mode, status};

/// A closure that makes the kernel's call for a function that a program has called: either through
/// the next library's function of that name, or as a bare system call.
pub(crate) trait Kernel: FnOnce() -> isize + Copy {}

impl<F: FnOnce() -> isize + Copy> Kernel for F {}

/// Returns the process's number from the kernel. A kept copy would be wrong in a child of `fork`.
#[inline]
pub(crate) fn process_number() -> i32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Returns the calling thread's number (gettid(2)).
#[cfg(target_arch = "x86_64")]
pub(crate) fn thread_number() -> i32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Has the kernel copy between `local`, memory that the caller answers for, and this process's
/// memory at `at`, by `number`: process_vm_readv(2) or process_vm_writev(2). Returns the number of
/// bytes; what is not mapped is an error, not a fault.
pub(crate) fn transfer_memory(number: i64, local: &libc::iovec, at: usize) -> usize {
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: local.iov_len };
    let (local, remote) = (core::ptr::from_ref(local) as usize, (&raw const remote) as usize);
    // SAFETY: the caller's local memory; the other memory is the kernel's to check.
    let done = unsafe { call(number, [process_number() as usize, local, 1, remote, 1, 0]) };
    usize::try_from(done).unwrap_or(0)
}

/// Reads this process's memory at `at` into `to`. Returns the number of bytes that could be read.
pub(crate) fn read_memory(at: usize, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    transfer_memory(libc::SYS_process_vm_readv, &local, at)
}

/// Returns the current soft limit `RLIMIT_NOFILE` (getrlimit(2)).
pub(crate) fn most_descriptors() -> u64 {
    limit_of(libc::RLIMIT_NOFILE)
}

/// Returns the current soft limit `RLIMIT_NPROC` (getrlimit(2)).
pub(crate) fn most_processes() -> u64 {
    limit_of(libc::RLIMIT_NPROC)
}

fn limit_of(resource: u32) -> u64 {
    // SAFETY: the arguments are those of `soft_limit`, which are local.
    let call = |number, arguments| unsafe { call(number, arguments) };
    soft_limit(&call, resource).unwrap_or(u64::MAX)
}

/// Returns true if `fd` is open, by `F_GETFD` (fcntl(2)).
pub(crate) fn is_open(fd: i32) -> bool {
    // SAFETY: reads a flag.
    unsafe { call(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0]) >= 0 }
}

/// Returns true if `O_NONBLOCK` is set on the open file description of `fd`.
pub(crate) fn is_nonblocking(fd: i32) -> bool {
    // SAFETY: reads flags.
    let flags = unsafe { call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) };
    flags >= 0 && flags as i32 & libc::O_NONBLOCK != 0
}

/// Reads a socket option at level `SOL_SOCKET` into `value`. Returns true if the call succeeds. `T`
/// must be the option's plain data type.
pub(crate) fn option<T: Copy>(fd: i32, name: i32, value: &mut T) -> bool {
    let mut len = size_of::<T>() as u32;
    let (at, len_at) = (core::ptr::from_mut(value) as usize, (&raw mut len) as usize);
    let arguments = [fd as usize, libc::SOL_SOCKET as usize, name as usize, at, len_at, 0];
    // SAFETY: room for the value and its length.
    unsafe { call(libc::SYS_getsockopt, arguments) >= 0 }
}

/// `SIOCATMARK` of ioctl(2), sockatmark(3).
const SIOCATMARK: usize = 0x8905;

/// Returns true if the next byte of the socket `fd` is the one that was sent out of band.
pub(crate) fn is_at_mark(fd: i32) -> bool {
    let mut is_at = 0i32;
    let place = (&raw mut is_at) as usize;
    // SAFETY: the kernel writes one number.
    let found = unsafe { call(libc::SYS_ioctl, [fd as usize, SIOCATMARK, place, 0, 0, 0]) };
    found == 0 && is_at != 0
}

/// Returns true if the next call on `fd` has an error to report. The error itself is left pending:
/// a call that has already transferred something reports that success first.
pub(crate) fn has_failed(fd: i32) -> bool {
    let mut one = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: one descriptor, and no time to wait.
    let found = unsafe { older::call(older::SYS_poll, [(&raw mut one) as usize, 1, 0, 0, 0, 0]) };
    found > 0 && one.revents & libc::POLLERR != 0
}
