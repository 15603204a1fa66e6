//! Which programs are loaded, which are preloaded into, and which are neither: from the first bytes
//! of their files.

use crate::raw;
use core::ffi::{CStr, c_char};
use sojourn_abi::elf::Image;

/// What kind of program a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Not known, or one that gains privileges: the kernel runs it.
    Plain,
    /// The GNU C library's: it is preloaded into.
    Dynamic,
    /// It makes its own system calls.
    Loaded,
}

const FIRST: usize = 4096;

/// The class of the file at a path of the guest's. Allocates little, and frees it.
pub(crate) fn class_of(path: usize) -> Class {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: the guest's path, for the kernel to check.
    let fd = unsafe { raw::call(libc::SYS_open, [path, flags, 0, 0, 0, 0]) };
    if fd < 0 {
        return Class::Plain;
    }
    let fd = fd as usize;
    let mut bytes = [0u8; FIRST];
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for both answers; the descriptor is ours.
    let (got, status) = unsafe {
        let got = raw::call(libc::SYS_pread64, [fd, bytes.as_mut_ptr() as usize, FIRST, 0, 0, 0]);
        raw::call(libc::SYS_fstat, [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0]);
        raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        (got, status.assume_init())
    };
    const PRIVILEGED: u32 = libc::S_ISUID | libc::S_ISGID;
    let bytes = &bytes[..usize::try_from(got).unwrap_or(0)];
    match Image::read(bytes) {
        // The GNU C library's loader, told to load a program: it preloads into that.
        Ok(_) if is_loader(path) => Class::Dynamic,
        Ok(_) if status.st_mode & PRIVILEGED != 0 => Class::Plain,
        Ok(image) => class(&image, bytes),
        Err(_) => Class::Plain,
    }
}

/// Whether a path, which the kernel has taken, is that of a dynamic loader.
fn is_loader(path: usize) -> bool {
    // SAFETY: a string of the guest's, as for the kernel.
    let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"ld-") || name.starts_with(b"ld.")
}

/// The class of a program with these headers, in whose file `bytes` are first.
pub(crate) fn class(image: &Image, bytes: &[u8]) -> Class {
    let Some((offset, len)) = image.interpreter else {
        return Class::Loaded;
    };
    let start = offset as usize;
    let interpreter = bytes.get(start..start.saturating_add(len as usize)).unwrap_or_default();
    let is_gnu = interpreter.windows(8).any(|part| part == b"ld-linux");
    if is_gnu && !image.is_go { Class::Dynamic } else { Class::Loaded }
}
