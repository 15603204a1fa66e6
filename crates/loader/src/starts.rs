//! The record of programs' starts (`sojourn_abi::starts`): its system calls, the guest's own entry,
//! and the guest's children.
//!
//! Not here: the children of dynamic programs (`crates/preload`, `record` and `loaded`).

use crate::plain::starts_with;
use crate::{cache, raw};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};
use sojourn_abi::starts::{self, Fd, Files, Key, PATH, Status};
use std::sync::OnceLock;

/// The guest's entry in the record.
#[derive(Debug)]
struct Own {
    folder: Vec<u8>,
    key: Key,
}

/// `None` without a cache folder.
static OWN: OnceLock<Option<Own>> = OnceLock::new();
/// True once the guest's entry says that it has a hot session.
static IS_NOTED: AtomicBool = AtomicBool::new(false);

/// Keeps the guest's key, and the folder's place by the guest's environment.
pub(crate) fn keep(key: Key, environment: &[*const c_char]) {
    let mut room = [0; PATH];
    let folder = starts::folder(|name| value_of(environment.iter().copied(), name), &mut room);
    let own = folder.map(|folder| Own { folder: folder.to_vec(), key });
    let _ = OWN.set(own);
}

/// Notes that the guest has a hot session, or that it is about to lose the rights to note it.
pub(crate) extern "C" fn is_hot() {
    if !IS_NOTED.swap(true, Ordering::Relaxed)
        && let Some(Some(Own { folder, key })) = OWN.get()
    {
        starts::is_hot(&Kernel, folder, key);
    }
}

/// Counts the start of a child with this environment. Returns true if it is to be started plainly.
pub(crate) fn is_small(
    key: &Key,
    environment: impl Iterator<Item = *const c_char> + Clone,
) -> bool {
    let mut room = [0; PATH];
    let folder = starts::folder(|name| value_of(environment.clone(), name), &mut room);
    folder.is_some_and(|folder| starts::is_small(&Kernel, folder, key))
}

/// Returns the value of the first variable that begins with `name`, which includes its `=`.
pub(crate) fn value_of<'e>(
    mut environment: impl Iterator<Item = *const c_char>,
    name: &[u8],
) -> Option<&'e [u8]> {
    let variable = environment.find(|one| starts_with(*one, name))?;
    // SAFETY: a string of the environment, which begins with the name.
    Some(unsafe { CStr::from_ptr(variable.add(name.len())) }.to_bytes())
}

/// The kernel's files.
struct Kernel;

fn open(folder: usize, path: *const u8, flags: i32) -> Option<Fd> {
    let flags = (flags | cache::FLAGS) as usize;
    let arguments = [folder, path as usize, flags, 0o600, 0, 0];
    // SAFETY: a path that ends with a zero.
    usize::try_from(unsafe { raw::call(libc::SYS_openat, arguments) }).ok()
}

impl Files for Kernel {
    fn folder(&self, path: &[u8]) -> Option<Fd> {
        open(libc::AT_FDCWD as usize, path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY)
    }

    fn file(&self, folder: Fd, name: &CStr) -> Option<Fd> {
        open(folder, name.as_ptr().cast(), libc::O_RDWR | libc::O_CREAT)
    }

    fn status(&self, fd: Fd) -> Option<Status> {
        let status = raw::status(fd)?;
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
        raw::limit(libc::RLIMIT_FSIZE as usize)
    }
}
