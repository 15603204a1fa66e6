//! New programs that make their own system calls: Sojourn's loader starts them.
//!
//! The loader lies beside this library, at the path that the new program's environment has for the
//! library; without such a path this file does nothing. The loader gets the program's path in a
//! variable, which the program does not see. A program that stays small, by the record of its
//! starts, is started plainly. Not here: the decision which programs need the loader and may be
//! loaded (`sojourn_abi::class`, `sojourn_abi::loadable`) and which stay small
//! (`sojourn_abi::starts`), and the children of programs that the loader has loaded
//! (`crates/loader`).
//!
//! Nothing stays allocated here, because a child of vfork(2) shares its parent's memory. What is
//! done for programs that are not loaded needs no relocation (`relocation`).

use crate::guard::is_shut;
use crate::record;
use crate::variables::{
    LIBRARY, List, PRELOAD, Text, all, copied, is_list, libraries, starts_with, value_of,
};
use crate::{older, raw, relocation};
use core::ffi::{CStr, c_char};
use sojourn_abi::cache::FileState;
use sojourn_abi::class::{Class, FIRST, FIRST_GLANCE, Glance, class, glance};
use sojourn_abi::loadable::{File, is_loadable};
use sojourn_abi::starts::{self, Key, Load};

/// The setting `load`, as `sojourn run` passes it on.
const LOAD: &[u8] = b"SOJOURN_LOAD=";
const FILE: &[u8] = b"SOJOURN_ABI_FILE=";
/// Has the loader start a program plainly without a word if it cannot load it.
const CHILD: &CStr = c"SOJOURN_ABI_QUIET=child";
/// The variable with the folders in which names are searched for.
const FOLDERS: &[u8] = b"PATH=";
const LOADER: &[u8] = b"sojourn-abi\0";
/// The longest path of a program, with the final zero, and of the loader, and the most variables of
/// an environment. With more a program is started plainly: all this is on the program's stack,
/// which may be small, and a child of vfork(2) could free nothing.
const PATH: usize = 1024;
const LOADER_PATH: usize = 512;
const VARIABLES: usize = 128;

/// The loading of a new program, as its environment has it.
#[derive(Clone, Copy)]
struct Loading<'e> {
    /// This library's path.
    library: &'e [u8],
    environment: List,
    /// True if programs that stay small are not loaded.
    is_auto: bool,
}

/// Starts `path` with `environment` by `run`, or lets the loader start it.
#[inline]
pub(crate) fn start<R>(path: Text, environment: List, run: impl FnOnce(Text, List) -> R) -> R {
    match Loading::of(environment) {
        Some(loading) if loading.concerns(path) => loading.by_loader(path, run),
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
    match Loading::of(environment) {
        Some(loading) => loading.found(name, run),
        None => run(name, environment),
    }
}

unsafe extern "C" {
    static environ: List;
}

/// Returns the first executable file of that name in `PATH`.
fn find(name: &[u8], place: &mut [u8; PATH]) -> Option<Text> {
    // Not getenv(3), whose address here is this library's own.
    // SAFETY: the C library's variable, as for `exec`.
    let folders = value_of(unsafe { environ }, FOLDERS).filter(|_| !name.is_empty())?;
    for folder in folders.split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let len = folder.len() + 1 + name.len();
        // What is there comes before what is in later folders.
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
        if can == 0 {
            return Some(at.cast());
        }
    }
    None
}

impl<'e> Loading<'e> {
    /// Returns the loading of programs with this environment; `None` if none is loaded, because
    /// this library is not first in the list of libraries, or by the setting `load`.
    fn of(environment: List) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") || !is_list(environment) {
            return None;
        }
        let load = Load::read(value_of(environment, LOAD));
        // A filter of this process's own is the child's as well, and may forbid what the loader
        // needs.
        if load == Load::Off || load == Load::Auto && is_shut() {
            return None;
        }
        let library = libraries(value_of(environment, PRELOAD)?).next()?;
        let is_auto = load == Load::Auto;
        library.ends_with(LIBRARY).then_some(Self { library, environment, is_auto })
    }

    #[inline(never)]
    fn found<R>(self, name: Text, run: impl FnOnce(Text, List) -> R) -> R {
        let mut place = [0u8; PATH];
        // SAFETY: the program's string, as for `exec`.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
        // Not `contains`, which calls a function of another crate.
        let has_folder = bytes.iter().any(|byte| matches!(byte, b'/'));
        let path = if has_folder { Some(name) } else { find(bytes, &mut place) };
        match path {
            Some(path) if self.concerns(path) => self.by_loader(path, run),
            _ => run(name, self.environment),
        }
    }

    #[inline(never)]
    fn by_loader<R>(self, path: Text, run: impl FnOnce(Text, List) -> R) -> R {
        let Self { library, environment, is_auto } = self;
        let mut loader = [0u8; LOADER_PATH];
        let mut file = [0u8; PATH + FILE.len()];
        let mut list = [core::ptr::null::<c_char>(); VARIABLES + 3];
        let folder = library.len() - LIBRARY.len();
        // SAFETY: the program's string, which `concerns` has opened.
        let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
        let count = copied(environment, &mut list, |_| true).filter(|count| *count <= VARIABLES);
        let fits = folder + LOADER.len() <= LOADER_PATH && FILE.len() + name.len() <= file.len();
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
        if is_auto {
            list[count + 1] = CHILD.as_ptr();
        }
        run(loader.as_ptr().cast(), list.as_ptr())
    }

    /// Returns true if the loader is to load a file. Counts the start if the record has to tell.
    #[inline(never)]
    fn concerns(self, path: Text) -> bool {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
        let folder = libc::AT_FDCWD as usize;
        // SAFETY: the kernel checks the program's path.
        let fd = unsafe { raw::call(libc::SYS_openat, [folder, path as usize, flags, 0, 0, 0]) };
        let Ok(fd) = usize::try_from(fd) else { return false };
        // SAFETY: the program's string, which the kernel has read for `open`.
        let concerns = self.concerns_file(unsafe { CStr::from_ptr(path) }, fd);
        // SAFETY: the descriptor was opened above.
        unsafe { raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
        concerns
    }

    /// Looks at little of most files: the program's stack may be small.
    fn concerns_file(self, path: &CStr, fd: usize) -> bool {
        let mut first = [0u8; FIRST_GLANCE];
        let first = begin(fd, &mut first);
        let glance = glance(first);
        // The variable is there if the loader itself is being started.
        let is_named = || all(self.environment).any(|variable| starts_with(variable, FILE));
        if glance == Glance::Ordinary || is_named() {
            return false;
        }
        let Some(status) = raw::status(fd) else { return false };
        if self.is_auto && glance == Glance::Static && self.is_small(path, first, &status) {
            return false;
        }
        relocation::all();
        is_loaded(File { path, fd, mode: status.st_mode })
    }

    /// Counts the start of a static program. Returns true if it is to be started plainly.
    fn is_small(self, path: &CStr, first: &[u8], status: &libc::stat) -> bool {
        let key = Key::new(path.to_bytes(), first, &FileState::of(status));
        let mut room = [0; starts::PATH];
        let folder = starts::folder(|name| value_of(self.environment, name), &mut room);
        folder.is_some_and(|folder| starts::is_small(&record::files(), folder, &key))
    }
}

/// Returns true if the loader can load a program. Allocates for a moment, by this library's own
/// allocator (`heap`), which takes no lock.
#[inline(never)]
fn is_loaded(file: File<'_>) -> bool {
    let mut first = vec![0; FIRST];
    let class = class(file.path.to_bytes(), begin(file.fd, &mut first));
    // SAFETY: the call's arguments are local.
    let kernel = |number, arguments| unsafe { raw::call(number, arguments) };
    matches!(class, Class::Loaded { .. }) && is_loadable(file, kernel)
}

/// Reads the beginning of a file.
#[inline]
fn begin(fd: usize, first: &mut [u8]) -> &[u8] {
    let arguments = [fd, first.as_mut_ptr() as usize, first.len(), 0, 0, 0];
    // SAFETY: there is room for the bytes.
    let got = unsafe { raw::call(libc::SYS_pread64, arguments) };
    first.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default()
}
