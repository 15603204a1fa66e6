//! The class of a file that the guest wants to execute. Not here: the decision itself
//! (`sojourn_abi::class`, `sojourn_abi::loadable`).

use crate::guest::guest;
use crate::raw;
use core::ffi::{CStr, c_char};
use sojourn_abi::cache::FileState;
pub(crate) use sojourn_abi::class::Class;
use sojourn_abi::class::{FIRST, class};
use sojourn_abi::loadable::{File, is_loadable};
use sojourn_abi::starts::Key;

/// A file that the guest wants to execute.
#[derive(Clone, Copy)]
pub(crate) struct Examined {
    pub(crate) class: Class,
    /// The name of the program in the record of starts, if it is static.
    pub(crate) key: Option<Key>,
}

impl Examined {
    pub(crate) const PLAIN: Self = Self { class: Class::Plain, key: None };
}

/// What a path of the guest's leads to.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Other(Examined),
    /// The running program, by `/proc/self/exe` or another name of that link: the loader's file.
    Own,
}

/// Looks at the file at a path of the guest's. Programs that must not be loaded are plain.
/// Allocates little, and frees it.
#[inline(never)]
pub(crate) fn target(path: usize) -> Target {
    let plain = Target::Other(Examined::PLAIN);
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: the kernel checks the guest's path.
    let fd = unsafe { raw::call(libc::SYS_open, [path, flags, 0, 0, 0, 0]) };
    let Ok(fd) = usize::try_from(fd) else { return without_descriptor(fd, path) };
    let found = raw::status(fd).map_or(plain, |status| {
        // SAFETY: the guest's string, which the kernel has read for `open`.
        of_file(unsafe { CStr::from_ptr(path as *const c_char) }, fd, &status)
    });
    // SAFETY: the descriptor was opened above.
    unsafe { raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
    found
}

/// Looks at a file that could not be opened (`error`), perhaps because no descriptor is free: the
/// loader's own must not be executed in any case.
#[cold]
fn without_descriptor(error: isize, path: usize) -> Target {
    // With these errors the kernel has read the whole path.
    let read = [libc::EMFILE, libc::ENFILE, libc::EACCES].map(raw::refusal);
    // SAFETY: the guest's string, which the kernel has read for `open`.
    let path = read.contains(&error).then(|| unsafe { CStr::from_ptr(path as *const c_char) });
    match path.and_then(raw::status_at) {
        Some(status) if raw::identity(&status) == guest().loader_id => Target::Own,
        _ => Target::Other(Examined::PLAIN),
    }
}

fn of_file(path: &CStr, fd: usize, status: &libc::stat) -> Target {
    let mut bytes = [0u8; FIRST];
    let arguments = [fd, bytes.as_mut_ptr() as usize, FIRST, 0, 0, 0];
    // SAFETY: there is room for the answer.
    let got = unsafe { raw::call(libc::SYS_pread64, arguments) };
    let first = bytes.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default();
    let class = class(path.to_bytes(), first);
    let Class::Loaded { is_static } = class else {
        return Target::Other(Examined { class, key: None });
    };
    if raw::identity(status) == guest().loader_id {
        return Target::Own;
    }
    let file = File { path, fd, mode: status.st_mode };
    // SAFETY: the call's arguments are local.
    if !is_loadable(file, |number, arguments| unsafe { raw::call(number, arguments) }) {
        return Target::Other(Examined::PLAIN);
    }
    let key = is_static.then(|| Key::new(path.to_bytes(), first, &FileState::of(status)));
    Target::Other(Examined { class, key })
}
