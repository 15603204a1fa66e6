//! execve(2): the guest's children run under Sojourn as the guest does.
//!
//! A dynamic program gets the preload library by its environment. A program that makes its own
//! system calls is started by the loader, which gets the path of the program's file in a variable
//! that the program does not see; or plainly, if it stays small. Not here: the class of a file
//! (`class`), the record of starts (`starts`).
//!
//! Nothing stays allocated here, because a child of vfork(2) shares its parent's memory.

use crate::class::{Class, Examined, Target, target};
use crate::guest::{call, guest};
use crate::plain::{CHILD, FILE, starts_with};
use crate::{cache, raw, starts};
use core::ffi::{CStr, c_char};
use sojourn_abi::starts::Load;

/// The variable in which ld.so(8) finds the libraries to preload.
pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The most variables that an environment may have to be changed. Larger ones are passed on
/// unchanged.
const VARIABLES: usize = 2000;
const PATH: usize = 4096 + FILE.len();

/// The setting `load`, as `sojourn run` passes it on.
const LOAD: &[u8] = b"SOJOURN_LOAD=";

/// The most pointers of an environment with what is added here.
type List = [*const c_char; VARIABLES + 4];

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// As the kernel starts it.
    Plain,
    /// By the loader; the second if nobody has asked for that.
    Loaded,
    LoadedSilently,
}

/// Iterates over the strings of the guest's list, up to the first that the kernel refuses.
fn all(environment: usize) -> impl Iterator<Item = *const c_char> + Clone {
    let len = if raw::is_plausible(environment) { usize::MAX } else { 0 };
    (0..len).map_while(move |at| {
        // SAFETY: the guest's list, which ends with a null pointer, as for the kernel.
        let variable = unsafe { *(environment as *const *const c_char).add(at) };
        raw::is_plausible(variable as usize).then_some(variable)
    })
}

/// Decides how a program is started with this environment. Counts the start if the record has to
/// tell.
fn decide(examined: &Examined, environment: usize) -> Start {
    let Class::Loaded { .. } = examined.class else { return Start::Plain };
    if !has_loader() {
        return Start::Plain;
    }
    match Load::read(starts::value_of(all(environment), LOAD)) {
        Load::Off => Start::Plain,
        Load::On => Start::Loaded,
        // The guest's filter is the child's as well, and may forbid what the loader needs.
        Load::Auto if cache::is_closed() => Start::Plain,
        Load::Auto => match &examined.key {
            Some(key) if starts::is_small(key, all(environment)) => Start::Plain,
            _ => Start::LoadedSilently,
        },
    }
}

/// Serves execve(2) with these arguments.
#[inline(never)]
pub(crate) fn exec(arguments: &[usize; 6]) -> isize {
    let [mut path, words, given, ..] = *arguments;
    let mut list: List = [core::ptr::null(); VARIABLES + 4];
    let mut file = [0u8; PATH];
    let examined = match target(path) {
        // `/proc/self/exe` leads to the loader's own file.
        Target::Own => {
            path = guest().file.as_ptr() as usize;
            of_own(path)
        }
        Target::Other(examined) => examined,
    };
    let start = decide(&examined, given);
    let changed = start != Start::Plain || guest().preload.is_some();
    let built = changed && build(&mut list, given, path, start, &mut file);
    let is_loaded = built && start != Start::Plain;
    let environment = if built { list.as_ptr() as usize } else { given };
    // SAFETY: the guest's own call, with its own lists or with one built here.
    let start = |program: usize, environment: usize| unsafe {
        call(libc::SYS_execve, &[program, words, environment, 0, 0, 0])
    };
    if is_loaded {
        // Only an error of the program's own, which its plain start shows, concerns the guest: the
        // loader's longer environment may be too long (`E2BIG`).
        start(guest().loader.as_ptr() as usize, environment);
        return start(path, given);
    }
    start(path, environment)
}

/// Examines the guest's own file.
fn of_own(path: usize) -> Examined {
    match target(path) {
        Target::Other(examined) => examined,
        Target::Own => Examined::PLAIN,
    }
}

/// Returns true if the loader's file is where it was: chroot(2), another mount namespace or another
/// user may have changed that.
fn has_loader() -> bool {
    let path = guest().loader.as_ptr() as usize;
    // SAFETY: a path that ends with a zero.
    unsafe { raw::call(libc::SYS_access, [path, libc::X_OK as usize, 0, 0, 0, 0]) == 0 }
}

/// Builds the environment: the guest's variables, the list of preloaded libraries that was hidden
/// from the guest, and for the loader the file's path. Returns false if the environment must stay
/// unchanged.
fn build(
    list: &mut List,
    environment: usize,
    path: usize,
    start: Start,
    file: &mut [u8; PATH],
) -> bool {
    let mut count = 0;
    let mut has_preload = false;
    // The kernel refuses what cannot be read.
    if !raw::is_plausible(environment) {
        return false;
    }
    for variable in all(environment) {
        if count == VARIABLES {
            return false;
        }
        has_preload |= starts_with(variable, PRELOAD);
        list[count] = variable;
        count += 1;
    }
    // SAFETY: the strings before are in the guest's list.
    if !unsafe { *(environment as *const *const c_char).add(count) }.is_null() {
        return false;
    }
    if let Some(preload) = &guest().preload
        && !has_preload
    {
        list[count] = preload.as_ptr();
        count += 1;
        has_preload = true;
    }
    if start != Start::Plain {
        // SAFETY: the guest's path, which the kernel has read (`target`).
        let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes_with_nul();
        // Without the preload library the loader would refuse the program anyway
        // (`Refusal::NoLibrary`).
        if !has_preload || FILE.len() + path.len() > PATH {
            return false;
        }
        file[..FILE.len()].copy_from_slice(FILE);
        file[FILE.len()..FILE.len() + path.len()].copy_from_slice(path);
        list[count] = file.as_ptr().cast();
        count += 1;
    }
    if start == Start::LoadedSilently {
        list[count] = CHILD.as_ptr();
        count += 1;
    }
    list[count] = core::ptr::null();
    true
}
