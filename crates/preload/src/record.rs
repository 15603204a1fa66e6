//! The record of programs' starts (`sojourn_abi::starts`), for children of dynamic programs: its
//! system calls.
//!
//! Nothing here allocates, because a child of vfork(2) shares its parent's memory. Not here: which
//! programs are looked up in the record (`loaded`).

use crate::raw;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use sojourn_abi::cache::FileState;
use sojourn_abi::starts::{Fd, Files, Status};

/// The kernel's files.
#[derive(Debug)]
pub(crate) struct Kernel;

/// The flags of all files and folders that are opened here.
const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

fn open(folder: usize, path: *const u8, flags: i32) -> Option<Fd> {
    let arguments = [folder, path as usize, (flags | FLAGS) as usize, 0o600, 0, 0];
    // SAFETY: a path that ends with a zero.
    usize::try_from(unsafe { raw::call(libc::SYS_openat, arguments) }).ok()
}

/// Returns what fstat(2) tells of a descriptor.
pub(crate) fn status(fd: Fd) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let arguments = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: `status` has room for the answer, and is zeroes if there is none.
    let (result, status) = unsafe { (raw::call(libc::SYS_fstat, arguments), status.assume_init()) };
    (result == 0).then_some(status)
}

/// Returns the state by which a changed file is known.
pub(crate) fn state(status: &libc::stat) -> FileState {
    let nanoseconds =
        |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    FileState {
        device: status.st_dev,
        inode: status.st_ino,
        size: status.st_size.cast_unsigned(),
        modified_ns: nanoseconds(status.st_mtime, status.st_mtime_nsec),
        changed_ns: nanoseconds(status.st_ctime, status.st_ctime_nsec),
    }
}

impl Files for Kernel {
    fn folder(&self, path: &[u8]) -> Option<Fd> {
        open(libc::AT_FDCWD as usize, path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY)
    }

    fn file(&self, folder: Fd, name: &CStr) -> Option<Fd> {
        open(folder, name.as_ptr().cast(), libc::O_RDWR | libc::O_CREAT)
    }

    fn status(&self, fd: Fd) -> Option<Status> {
        let status = status(fd)?;
        let size = status.st_size.cast_unsigned();
        Some(Status { user: status.st_uid, mode: status.st_mode, size })
    }

    fn read(&self, fd: Fd, to: &mut [u8], offset: u64) {
        let arguments = [fd, to.as_mut_ptr() as usize, to.len(), offset as usize, 0, 0];
        // SAFETY: there is room for the bytes.
        unsafe { raw::call(libc::SYS_pread64, arguments) };
    }

    fn write(&self, fd: Fd, bytes: &[u8], offset: u64) {
        let arguments = [fd, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0];
        // SAFETY: the bytes are readable.
        unsafe { raw::call(libc::SYS_pwrite64, arguments) };
    }

    fn close(&self, fd: Fd) {
        // SAFETY: a descriptor that was opened here.
        unsafe { raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
    }

    fn user(&self) -> u32 {
        // SAFETY: no arguments, no effect.
        unsafe { raw::call(libc::SYS_geteuid, [0; 6]) as u32 }
    }

    fn size_limit(&self) -> u64 {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let (which, to) = (libc::RLIMIT_FSIZE as usize, (&raw mut limit) as usize);
        // SAFETY: `limit` has room for the answer.
        unsafe { raw::call(libc::SYS_prlimit64, [0, which, 0, to, 0, 0]) };
        limit.rlim_cur
    }
}
