//! New programs that make their own system calls: Sojourn's loader loads them.
//!
//! It lies beside this library, which the environment names for the new program, or nothing is done
//! here. It gets the program's path in a variable that the program does not see. Not here: which
//! programs these are (`sojourn_abi::class`), children of programs that the loader has loaded
//! (`crates/loader`).
//!
//! In a child of vfork(2) memory is the parent's: nothing is allocated.

use crate::raw;
use core::ffi::{CStr, c_char};
use sojourn_abi::class::{Class, FIRST, class};

/// Strings with their zeroes.
type Path = *const c_char;
/// Strings, and a null pointer at the end.
type List = *const *const c_char;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The setting `load`, as `sojourn run` passes it on.
const LOAD: &[u8] = b"SOJOURN_LOAD=";
const FILE: &[u8] = b"SOJOURN_ABI_FILE=";
const LIBRARY: &[u8] = b"libsojourn_preload.so";
const LOADER: &[u8] = b"sojourn-abi\0";
/// Environments with more variables are passed on as they are.
const VARIABLES: usize = 1000;
/// `PATH_MAX`.
const PATH: usize = 4096;

/// Executes `path` with `environment` by `run`, or has the loader do it.
#[inline]
pub(crate) fn start<R>(path: Path, environment: List, run: impl FnOnce(Path, List) -> R) -> R {
    match library_of(environment) {
        Some(library) if class_of(path) == Class::Loaded => {
            by_loader(path, environment, library, run)
        }
        _ => run(path, environment),
    }
}

/// The same for a name that is looked for in `PATH` unless it has a slash. `run` gets a path if the
/// loader is to be executed, and otherwise the name.
#[inline]
pub(crate) fn start_found<R>(
    name: Path,
    environment: List,
    run: impl FnOnce(Path, List) -> R,
) -> R {
    match library_of(environment) {
        Some(library) => found_by_loader(name, environment, library, run),
        None => run(name, environment),
    }
}

#[inline(never)]
fn found_by_loader<R>(
    name: Path,
    environment: List,
    library: &[u8],
    run: impl FnOnce(Path, List) -> R,
) -> R {
    let mut place = [0u8; PATH];
    // SAFETY: a string of the program's.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    let path = if bytes.contains(&b'/') { Some(name) } else { find(bytes, &mut place) };
    match path {
        Some(path) if class_of(path) == Class::Loaded => by_loader(path, environment, library, run),
        _ => run(name, environment),
    }
}

/// The first file of that name in `PATH` that may be executed.
fn find(name: &[u8], place: &mut [u8; PATH]) -> Option<Path> {
    // SAFETY: a variable of the C library's, or null.
    let folders = unsafe { libc::getenv(c"PATH".as_ptr()) };
    if folders.is_null() || name.is_empty() {
        return None;
    }
    // SAFETY: just looked at.
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
        // SAFETY: a string of ours.
        let can =
            unsafe { raw::call(libc::SYS_access, [at as usize, libc::X_OK as usize, 0, 0, 0, 0]) };
        (can == 0).then_some(at.cast())
    })
}

/// This library's path, where the environment has it first and says that programs are loaded.
fn library_of<'e>(environment: List) -> Option<&'e [u8]> {
    if environment.is_null() || value_of(environment, LOAD)? != b"true" {
        return None;
    }
    let list = value_of(environment, PRELOAD)?;
    let first = list.split(|byte| matches!(byte, b':' | b' ')).next()?;
    first.ends_with(LIBRARY).then_some(first)
}

/// What is behind `name` (with its `=`) in an environment.
fn value_of<'e>(environment: List, name: &[u8]) -> Option<&'e [u8]> {
    let mut at = environment;
    loop {
        // SAFETY: a list of the program's that ends with a null pointer, at which this stops.
        let variable = unsafe { *at };
        if variable.is_null() {
            return None;
        }
        if starts_with(variable, name) {
            // SAFETY: a string of the environment.
            return Some(&unsafe { CStr::from_ptr(variable) }.to_bytes()[name.len()..]);
        }
        // SAFETY: not the end yet.
        at = unsafe { at.add(1) };
    }
}

/// Whether a string begins so.
fn starts_with(string: Path, with: &[u8]) -> bool {
    // SAFETY: a string; compared no further than its zero.
    with.iter().enumerate().all(|(at, byte)| unsafe { *string.add(at) as u8 == *byte })
}

#[inline(never)]
fn by_loader<R>(
    path: Path,
    environment: List,
    library: &[u8],
    run: impl FnOnce(Path, List) -> R,
) -> R {
    let mut loader = [0u8; PATH];
    let mut file = [0u8; PATH + FILE.len()];
    let mut list = [core::ptr::null::<c_char>(); VARIABLES + 2];
    let folder = library.len() - LIBRARY.len();
    // SAFETY: a string of the program's, which the kernel has taken.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let count = copied(environment, &mut list);
    let fits = folder + LOADER.len() <= PATH && FILE.len() + name.len() <= file.len();
    let Some(count) = count.filter(|_| fits) else { return run(path, environment) };
    loader[..folder].copy_from_slice(&library[..folder]);
    loader[folder..folder + LOADER.len()].copy_from_slice(LOADER);
    // SAFETY: a string of ours.
    let has_loader = unsafe {
        let at = loader.as_ptr() as usize;
        raw::call(libc::SYS_access, [at, libc::X_OK as usize, 0, 0, 0, 0]) == 0
    };
    if !has_loader {
        return run(path, environment);
    }
    file[..FILE.len()].copy_from_slice(FILE);
    file[FILE.len()..FILE.len() + name.len()].copy_from_slice(name);
    list[count] = file.as_ptr().cast();
    run(loader.as_ptr().cast(), list.as_ptr())
}

/// Copies a list, without its end; how long it is, if there is room and no such variable in it.
fn copied(environment: List, list: &mut [Path; VARIABLES + 2]) -> Option<usize> {
    for (at, place) in list[..VARIABLES].iter_mut().enumerate() {
        // SAFETY: a list that ends with a null pointer, at which this stops.
        let variable = unsafe { *environment.add(at) };
        if variable.is_null() {
            return Some(at);
        }
        if starts_with(variable, FILE) {
            return None;
        }
        *place = variable;
    }
    None
}

/// The class of a file. What gains privileges by being started is plain.
fn class_of(path: Path) -> Class {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: the program's path, for the kernel to check.
    let fd = unsafe { raw::call(libc::SYS_open, [path as usize, flags, 0, 0, 0, 0]) };
    if fd < 0 {
        return Class::Plain;
    }
    let fd = fd as usize;
    let mut first = [0u8; FIRST];
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for both answers; the descriptor is ours.
    let (got, status) = unsafe {
        let got = raw::call(libc::SYS_pread64, [fd, first.as_mut_ptr() as usize, FIRST, 0, 0, 0]);
        raw::call(libc::SYS_fstat, [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0]);
        raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        (got, status.assume_init())
    };
    if status.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return Class::Plain;
    }
    // SAFETY: a string of the program's, which the kernel has taken.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    class(path, &first[..usize::try_from(got).unwrap_or(0)])
}
