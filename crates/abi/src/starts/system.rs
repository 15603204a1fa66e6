//! The files of the record of starts, by system calls that the caller makes: this crate makes none.
//!
//! Not here: what is read and written (`starts`).

use super::{Fd, Files, Status};
use crate::loadable::{Kernel, soft_limit};
use core::ffi::CStr;

/// The flags of all files and folders that are opened here.
const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// The kernel's files.
#[derive(Clone, Copy, Debug)]
pub struct System<C, S> {
    /// Makes a system call.
    pub call: C,
    /// Asks fstat(2).
    pub status: S,
}

impl<C: Kernel, S: Fn(Fd) -> Option<libc::stat>> System<C, S> {
    fn open(&self, folder: usize, path: *const u8, flags: i32) -> Option<Fd> {
        let arguments = [folder, path as usize, (flags | FLAGS) as usize, 0o600, 0, 0];
        usize::try_from((self.call)(libc::SYS_openat, arguments)).ok()
    }
}

impl<C: Kernel, S: Fn(Fd) -> Option<libc::stat>> Files for System<C, S> {
    fn folder(&self, path: &[u8]) -> Option<Fd> {
        self.open(libc::AT_FDCWD as usize, path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY)
    }

    fn file(&self, folder: Fd, name: &CStr) -> Option<Fd> {
        self.open(folder, name.as_ptr().cast(), libc::O_RDWR | libc::O_CREAT)
    }

    fn status(&self, fd: Fd) -> Option<Status> {
        let status = (self.status)(fd)?;
        let size = status.st_size.cast_unsigned();
        Some(Status { user: status.st_uid, mode: status.st_mode, size })
    }

    fn read(&self, fd: Fd, to: &mut [u8], offset: u64) {
        let arguments = [fd, to.as_mut_ptr() as usize, to.len(), offset as usize, 0, 0];
        (self.call)(libc::SYS_pread64, arguments);
    }

    fn write(&self, fd: Fd, bytes: &[u8], offset: u64) {
        let arguments = [fd, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0];
        (self.call)(libc::SYS_pwrite64, arguments);
    }

    fn close(&self, fd: Fd) {
        (self.call)(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    }

    fn user(&self) -> u32 {
        (self.call)(libc::SYS_geteuid, [0; 6]) as u32
    }

    fn size_limit(&self) -> u64 {
        soft_limit(&self.call, libc::RLIMIT_FSIZE).unwrap_or(0)
    }
}
