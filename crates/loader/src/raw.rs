//! Bare system calls. Not here: calls that the library must see (`guest::call`).

use core::ffi::CStr;
use sojourn_abi::loadable::soft_limit;
pub(crate) use sojourn_syscall::{call, status};
use std::ffi::CString;

/// Blocks every signal that can be blocked. Returns the previous mask.
pub(crate) fn block_signals() -> u64 {
    set_mask(!0)
}

/// Sets this thread's signal mask. Returns the previous one.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = ((&raw const mask) as usize, (&raw mut before) as usize);
    let arguments = [libc::SIG_SETMASK as usize, new, old, 8, 0, 0];
    // SAFETY: both masks are local.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

/// Returns this thread's number.
pub(crate) fn thread_number() -> i32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Returns this process's number.
pub(crate) fn process_number() -> i32 {
    // SAFETY: no arguments, no effect.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Wakes at most `most` threads that wait for a word, also of other processes.
pub(crate) fn wake(word: *const u32, most: usize) {
    let arguments = [word as usize, libc::FUTEX_WAKE as usize, most, 0, 0, 0];
    // SAFETY: wakes threads, and does not access the word.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Returns the soft limit of this process on a resource (getrlimit(2)).
pub(crate) fn limit(resource: u32) -> u64 {
    // SAFETY: the arguments are those of `soft_limit`, which are local.
    soft_limit(&|number, arguments| unsafe { call(number, arguments) }, resource).unwrap_or(0)
}

/// Returns the status of the file at a path (stat(2)).
pub(crate) fn status_at(path: &CStr) -> Option<libc::stat> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let (path, out) = (path.as_ptr() as usize, status.as_mut_ptr() as usize);
    // AArch64 has no stat(2).
    let arguments = [libc::AT_FDCWD as usize, path, out, 0, 0, 0];
    // SAFETY: a path that ends with a zero; `status` has room for the answer, and is zeroes if
    // there is none.
    let (result, status) = unsafe { (call(libc::SYS_newfstatat, arguments), status.assume_init()) };
    (result == 0).then_some(status)
}

/// What tells a file from all others: its device and its number there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    number: u64,
}

/// Returns what tells this file from all others.
pub(crate) fn identity(status: &libc::stat) -> Identity {
    Identity { device: status.st_dev, number: status.st_ino }
}

/// Returns true if this is the status of an ordinary file.
pub(crate) fn is_file(status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Maps all of a file for reading, until [`unmap`].
///
/// # Errors
/// The kernel's `errno`.
pub(crate) fn map_file(fd: usize) -> Result<&'static [u8], i32> {
    map(fd, status(fd).map_or(0, |status| status.st_size as usize))
}

/// Does the same for a file of `len` bytes.
///
/// # Errors
/// The kernel's `errno`.
pub(crate) fn map(fd: usize, len: usize) -> Result<&'static [u8], i32> {
    let (read, private) = (libc::PROT_READ as usize, libc::MAP_PRIVATE as usize);
    // SAFETY: the kernel chooses an address that is not in use.
    let at = unsafe { call(libc::SYS_mmap, [0, len, read, private, fd, 0]) };
    let at = usize::try_from(at).map_err(|_| -at as i32)?;
    // SAFETY: the mapping was just made. A process that may change the file may change the program
    // anyway.
    Ok(unsafe { core::slice::from_raw_parts(at as *const u8, len) })
}

/// Undoes [`map_file`].
///
/// # Safety
/// There is no other reference to the bytes.
pub(crate) unsafe fn unmap(bytes: &'static [u8]) {
    // SAFETY: the caller promises it.
    unsafe { call(libc::SYS_munmap, [bytes.as_ptr() as usize, bytes.len(), 0, 0, 0, 0]) };
}

/// Returns the target of a symbolic link.
pub(crate) fn link(path: &CStr) -> Option<CString> {
    /// `PATH_MAX`.
    const PATH: usize = 4096;
    let mut target = [0u8; PATH];
    let room = (&raw mut target) as usize;
    let (folder, path) = (libc::AT_FDCWD as usize, path.as_ptr() as usize);
    // SAFETY: `target` has room for `PATH` bytes.
    let len = unsafe { call(libc::SYS_readlinkat, [folder, path, room, PATH, 0, 0]) };
    CString::new(target.get(..usize::try_from(len).ok()?)?).ok()
}

/// Returns false for an address that no program can have, so that the kernel refuses a call with
/// it (`EFAULT`).
pub(crate) fn is_plausible(address: usize) -> bool {
    /// `mmap_min_addr` is this by default; the lowest page is never mapped.
    const LOWEST: usize = 4096;
    const END: usize = 1 << 47;
    (LOWEST..END).contains(&address)
}

/// Returns an error in the kernel's form.
pub(crate) fn refusal(error: i32) -> isize {
    -(error as isize)
}
