//! The setting `follow`: new programs get the library although the program that starts them has
//! removed it from their environment (`env -i`, sshd, nginx for its successor).
//!
//! The library's path and settings are copied at the process's start, because programs overwrite
//! their environment. They are never given to a program that gains privileges when it is started,
//! where ld.so(8) would ignore them, nor to Sojourn's own programs. With `same-user` they are given
//! only as long as the process has the user IDs of its start. Not here: `execl`, `execle`,
//! `execlp`, `system` and `popen`, which pass variables on inside the C library. Read `variables`
//! and `exec` first.

use crate::guard::{is_initialized, is_open};
use crate::library::library;
use crate::variables::{
    LIBRARY, List, MOST, PRELOAD, Text, copied, is_list, libraries, starts_with, value_of,
};
use crate::{older, raw};
use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::sync::OnceLock;

/// The setting, as `sojourn run` passes it on.
const FOLLOW: &[u8] = b"SOJOURN_FOLLOW=";
/// The prefix of all settings.
const SETTING: &[u8] = b"SOJOURN_";
/// The most settings that are passed on.
const OURS: usize = 64;
/// Room in bytes for a list of libraries that has this library and the program's own.
const LIBRARIES: usize = 4096;

/// The variables that new programs get.
#[derive(Debug)]
struct InheritedVariables {
    /// `LD_PRELOAD=` and the library's path.
    library: CString,
    /// The real and effective user ID whose programs get them; `None` means any user.
    users: Option<[isize; 2]>,
}

// FORK: set at the start.
static GIVEN: OnceLock<InheritedVariables> = OnceLock::new();

/// Copies the library's path from `preloaded`, the value of [`PRELOAD`] at the process's start, if
/// `follow` is set. The settings are those that the library keeps.
pub(crate) fn start(preloaded: &[u8]) {
    let users = match settings().find_map(|one| one.to_bytes().strip_prefix(FOLLOW)) {
        Some(b"same-user") => Some(users()),
        Some(b"on") => None,
        _ => return,
    };
    let Some(path) = libraries(preloaded).find(|one| one.ends_with(LIBRARY)) else { return };
    if let Ok(library) = CString::new([PRELOAD, path].concat()) {
        // `GIVEN` is set once: this function runs once.
        let _ = GIVEN.set(InheritedVariables { library, users });
    }
}

/// Iterates over the settings that the process was started with.
fn settings() -> impl Iterator<Item = &'static CStr> {
    let kept = library().kept_environment();
    kept.filter(|variable| variable.to_bytes().starts_with(SETTING)).take(OURS)
}

fn users() -> [isize; 2] {
    // SAFETY: these system calls only return numbers.
    [libc::SYS_getuid, libc::SYS_geteuid].map(|number| unsafe { raw::call(number, [0; 6]) })
}

/// Calls `run` to start `path` with `environment`, to which the library is added if it is to be.
#[inline]
pub(crate) fn with<R>(path: Text, environment: List, run: impl FnOnce(List) -> R) -> R {
    // Initializing the library sets `GIVEN`. There is no need to for an environment that has the
    // library.
    if !is_initialized() && is_list(environment) && !has_library(environment) {
        is_open();
    }
    match GIVEN.get() {
        Some(given) if given.is_for(path, environment) => given.put_back(environment, run),
        _ => run(environment),
    }
}

impl InheritedVariables {
    fn is_for(&self, path: Text, environment: List) -> bool {
        // A list or a path that cannot be read is passed on unchanged, so that the kernel refuses
        // it.
        if !is_list(environment) || gains(path) != Some(false) {
            return false;
        }
        // SAFETY: the program's string, readable as `gains` has found.
        let name = unsafe { CStr::from_ptr(path) }.to_bytes();
        let is_ours = name.rsplit(|byte| *byte == b'/').next().is_some_and(is_own_program);
        !has_library(environment) && !is_ours && self.users.is_none_or(|then| then == users())
    }

    #[inline(never)]
    fn put_back<R>(&self, environment: List, run: impl FnOnce(List) -> R) -> R {
        let mut list = [core::ptr::null::<c_char>(); MOST + OURS + 2];
        let mut room = [0u8; LIBRARIES];
        let theirs = value_of(environment, PRELOAD).unwrap_or_default();
        let copied = copied(environment, &mut list, |one| !starts_with(one, PRELOAD));
        let (Some(mut count), Some(first)) = (copied, self.joined(theirs, &mut room)) else {
            return run(environment);
        };
        let is_missing = |setting: &&CStr| {
            let name = setting.to_bytes().split_inclusive(|byte| *byte == b'=').next();
            name.is_some_and(|name| value_of(environment, name).is_none())
        };
        let settings = settings().filter(is_missing).map(CStr::as_ptr);
        for variable in core::iter::once(first).chain(settings) {
            list[count] = variable;
            count += 1;
        }
        run(list.as_ptr())
    }

    /// Returns `LD_PRELOAD=` with this library before those of `theirs`; `None` if `room` is too
    /// small.
    fn joined(&self, theirs: &[u8], room: &mut [u8; LIBRARIES]) -> Option<Text> {
        if theirs.is_empty() {
            return Some(self.library.as_ptr());
        }
        let mut at = 0;
        for part in [self.library.as_bytes(), b":", theirs] {
            room.get_mut(at..at + part.len())?.copy_from_slice(part);
            at += part.len();
        }
        // The string's final zero must fit, too.
        room.get(at).map(|_| room.as_ptr().cast())
    }
}

/// Returns true if a list, which `is_list` has accepted, names the library.
fn has_library(environment: List) -> bool {
    let paths = value_of(environment, PRELOAD).unwrap_or_default();
    paths.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

/// Returns true for Sojourn's own programs, which run without the library.
fn is_own_program(name: &[u8]) -> bool {
    matches!(
        name,
        b"sojourn"
            | b"sojournd"
            | b"sojourn-abi"
            | b"sojourn-driver"
            | b"sojourn-protocol"
            | b"sojourn-udpd"
    )
}

/// Returns true if the file at `path` is set-user-ID or set-group-ID; `None` if the path is not in
/// this process's memory.
///
/// A name without a folder, which `PATH` completes later, is looked up in the working directory
/// here; for such a name ld.so(8) alone decides.
fn gains(path: Text) -> Option<bool> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let arguments = [path as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel checks the program's path, and `status` has room for its answer.
    let (result, status) =
        unsafe { (older::call(older::SYS_stat, arguments), status.assume_init()) };
    let is_there = result != -(libc::EFAULT as isize);
    is_there.then_some(status.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0)
}
