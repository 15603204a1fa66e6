//! New programs that make their own system calls: Sojourn's loader starts them.
//!
//! The loader lies beside this library, at the path that the new program's environment has for the
//! library; without such a path this file does nothing. The loader gets the program's path in a
//! variable, which the program does not see. Not here: the decision which programs need the loader
//! (`sojourn_abi::class`, `sojourn_abi::loadable`), and the children of programs that the loader
//! has loaded (`crates/loader`).
//!
//! Nothing here allocates, because a child of vfork(2) shares its parent's memory.

use crate::variables::{
    LIBRARY, List, MOST, PRELOAD, Text, all, copied, is_list, libraries, starts_with, value_of,
};
use crate::{older, raw, relocation};
use core::ffi::{CStr, c_char};
use sojourn_abi::class::{Class, FIRST, class};
use sojourn_abi::loadable::{File, is_loadable};

/// The setting `load`, as `sojourn run` passes it on.
const LOAD: &[u8] = b"SOJOURN_LOAD=";
const FILE: &[u8] = b"SOJOURN_ABI_FILE=";
const LOADER: &[u8] = b"sojourn-abi\0";
/// `PATH_MAX`.
const PATH: usize = 4096;

/// Starts `path` with `environment` by `run`, or lets the loader start it.
#[inline]
pub(crate) fn start<R>(path: Text, environment: List, run: impl FnOnce(Text, List) -> R) -> R {
    match library_of(environment) {
        Some(library) if is_loaded(path) => by_loader(path, environment, library, run),
        _ => run(path, environment),
    }
}

/// Starts a program as [`start`] does, for a name that is searched for in `PATH` unless it contains
/// a slash. `run` gets a path if the loader is to be started, else the name.
#[inline]
pub(crate) fn start_found<R>(
    name: Text,
    environment: List,
    run: impl FnOnce(Text, List) -> R,
) -> R {
    match library_of(environment) {
        Some(library) => found_by_loader(name, environment, library, run),
        None => run(name, environment),
    }
}

#[inline(never)]
fn found_by_loader<R>(
    name: Text,
    environment: List,
    library: &[u8],
    run: impl FnOnce(Text, List) -> R,
) -> R {
    relocation::all();
    let mut place = [0u8; PATH];
    // SAFETY: the program's string, as for `exec`.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    let path = if bytes.contains(&b'/') { Some(name) } else { find(bytes, &mut place) };
    match path {
        Some(path) if is_loaded(path) => by_loader(path, environment, library, run),
        _ => run(name, environment),
    }
}

/// Returns the first executable file of that name in `PATH`.
fn find(name: &[u8], place: &mut [u8; PATH]) -> Option<Text> {
    // SAFETY: the name is a string; the result is the C library's string, or null.
    let folders = unsafe { libc::getenv(c"PATH".as_ptr()) };
    if folders.is_null() || name.is_empty() {
        return None;
    }
    // SAFETY: not null, as checked above.
    let folders = unsafe { CStr::from_ptr(folders) }.to_bytes();
    folders.split(|byte| *byte == b':').find_map(|folder| {
        let folder = if folder.is_empty() { b"." } else { folder };
        let len = folder.len() + 1 + name.len();
        let room = place.get_mut(..=len)?;
        room[..folder.len()].copy_from_slice(folder);
        room[folder.len()] = b'/';
        room[folder.len() + 1..len].copy_from_slice(name);
        room[len] = 0;
        let at = room.as_ptr();
        // SAFETY: a string in `place`, which ends with a zero.
        let can = unsafe {
            older::call(older::SYS_access, [at as usize, libc::X_OK as usize, 0, 0, 0, 0])
        };
        (can == 0).then_some(at.cast())
    })
}

/// Returns this library's path if it is first in the environment's list of libraries, and the
/// setting `load` is on.
fn library_of<'e>(environment: List) -> Option<&'e [u8]> {
    if !is_list(environment) || value_of(environment, LOAD)? != b"true" {
        return None;
    }
    let first = libraries(value_of(environment, PRELOAD)?).next()?;
    first.ends_with(LIBRARY).then_some(first)
}

#[inline(never)]
fn by_loader<R>(
    path: Text,
    environment: List,
    library: &[u8],
    run: impl FnOnce(Text, List) -> R,
) -> R {
    let mut loader = [0u8; PATH];
    let mut file = [0u8; PATH + FILE.len()];
    let mut list = [core::ptr::null::<c_char>(); MOST + 2];
    let folder = library.len() - LIBRARY.len();
    // SAFETY: the program's string, which `class_of` has opened.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    // The variable is there if a child of the loader is already starting a program; the loader is
    // not added twice.
    let is_named = all(environment).any(|variable| starts_with(variable, FILE));
    let count = copied(environment, &mut list, |_| true).filter(|_| !is_named);
    let fits = folder + LOADER.len() <= PATH && FILE.len() + name.len() <= file.len();
    let Some(count) = count.filter(|_| fits) else { return run(path, environment) };
    loader[..folder].copy_from_slice(&library[..folder]);
    loader[folder..folder + LOADER.len()].copy_from_slice(LOADER);
    // SAFETY: a string in `loader`, which ends with a zero.
    let has_loader = unsafe {
        let at = loader.as_ptr() as usize;
        older::call(older::SYS_access, [at, libc::X_OK as usize, 0, 0, 0, 0]) == 0
    };
    if !has_loader {
        return run(path, environment);
    }
    file[..FILE.len()].copy_from_slice(FILE);
    file[FILE.len()..FILE.len() + name.len()].copy_from_slice(name);
    list[count] = file.as_ptr().cast();
    run(loader.as_ptr().cast(), list.as_ptr())
}

/// Returns true if the loader is to load a file. Relocates this library: what follows needs it.
fn is_loaded(path: Text) -> bool {
    relocation::all();
    class_of(path) == Class::Loaded
}

/// Returns the class of a file. Programs that must not be loaded are plain.
fn class_of(path: Text) -> Class {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: the kernel checks the program's path.
    let fd = unsafe { older::call(older::SYS_open, [path as usize, flags, 0, 0, 0, 0]) };
    let Ok(fd) = usize::try_from(fd) else { return Class::Plain };
    // SAFETY: the program's string, which the kernel has read for `open`.
    let class = of_file(unsafe { CStr::from_ptr(path) }, fd);
    // SAFETY: the descriptor was opened above.
    unsafe { raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
    class
}

fn of_file(path: &CStr, fd: usize) -> Class {
    let mut first = [0u8; FIRST];
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for both answers.
    let (got, status) = unsafe {
        let got = raw::call(libc::SYS_pread64, [fd, first.as_mut_ptr() as usize, FIRST, 0, 0, 0]);
        raw::call(libc::SYS_fstat, [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0]);
        (got, status.assume_init())
    };
    let got = first.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default();
    let class = class(path.to_bytes(), got);
    let file = File { path, fd, mode: status.st_mode };
    // SAFETY: the call's arguments are local.
    let kernel = |number, arguments| unsafe { raw::call(number, arguments) };
    if class == Class::Loaded && !is_loadable(file, kernel) { Class::Plain } else { class }
}
