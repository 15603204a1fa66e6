//! The class of a file that the guest wants to execute. Not here: the decision itself
//! (`sojourn_abi::class`).

use crate::{cache, raw};
use core::ffi::{CStr, c_char};
pub(crate) use sojourn_abi::class::Class;
use sojourn_abi::class::{FIRST, class};
use sojourn_abi::starts::Key;

/// A file that the guest wants to execute.
#[derive(Clone, Copy)]
pub(crate) struct Examined {
    pub(crate) class: Class,
    /// The name of the program in the record of starts, if it is static.
    pub(crate) key: Option<Key>,
}

impl Examined {
    const PLAIN: Self = Self { class: Class::Plain, key: None };
}

/// Examines the file at a path of the guest's. Set-user-ID and set-group-ID programs are plain.
/// Allocates little, and frees it.
#[inline(never)]
pub(crate) fn examine(path: usize) -> Examined {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: the kernel checks the guest's path.
    let fd = unsafe { raw::call(libc::SYS_open, [path, flags, 0, 0, 0, 0]) };
    if fd < 0 {
        return Examined::PLAIN;
    }
    let fd = fd as usize;
    let mut bytes = [0u8; FIRST];
    let status = raw::status(fd);
    // SAFETY: there is room for the answer; the descriptor was opened above.
    let got = unsafe {
        let got = raw::call(libc::SYS_pread64, [fd, bytes.as_mut_ptr() as usize, FIRST, 0, 0, 0]);
        raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        got
    };
    let rights = libc::S_ISUID | libc::S_ISGID;
    let Some(status) = status.filter(|status| status.st_mode & rights == 0) else {
        return Examined::PLAIN;
    };
    // SAFETY: the guest's string, which the kernel has read for `open`.
    let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes();
    let first = bytes.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default();
    let class = class(path, first);
    let is_static = class == Class::Loaded { is_static: true };
    let key = is_static.then(|| Key::new(path, first, &cache::state(&status)));
    Examined { class, key }
}
