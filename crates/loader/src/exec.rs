//! execve(2): the guest's children run under Sojourn as the guest does.
//!
//! A dynamic program gets the preload library by its environment. A program that makes its own
//! system calls is started by the loader, which gets the path of the program's file in a variable
//! that the program does not see. Not here: the class of a file (`class`).
//!
//! Nothing stays allocated here, because a child of vfork(2) shares its parent's memory.

use crate::class::{Class, Target, target};
use crate::guest::{call, guest};
use crate::plain::{FILE, starts_with};
use crate::raw;
use core::ffi::{CStr, c_char};

/// The variable in which ld.so(8) finds the libraries to preload.
pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The most variables that an environment may have to be changed. Larger ones are passed on
/// unchanged.
const VARIABLES: usize = 2000;
const PATH: usize = 4096 + FILE.len();

/// Serves execve(2) with these arguments.
#[inline(never)]
pub(crate) fn exec(arguments: &[usize; 6]) -> isize {
    let [mut path, words, given, ..] = *arguments;
    let mut list = [core::ptr::null::<c_char>(); VARIABLES + 3];
    let mut file = [0u8; PATH];
    let class = match target(path) {
        // `/proc/self/exe` leads to the loader's own file.
        Target::Own => {
            path = guest().file.as_ptr() as usize;
            of_own(path)
        }
        Target::Other(Class::Loaded) if !has_loader() => Class::Plain,
        Target::Other(class) => class,
    };
    let changed = match class {
        Class::Plain | Class::Dynamic => guest().preload.is_some(),
        Class::Loaded => true,
    };
    let built = changed && build(&mut list, given, path, class == Class::Loaded, &mut file);
    let is_loaded = built && class == Class::Loaded;
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

/// Returns the class of the guest's own file.
fn of_own(path: usize) -> Class {
    match target(path) {
        Target::Other(Class::Loaded) if has_loader() => Class::Loaded,
        _ => Class::Plain,
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
    list: &mut [*const c_char; VARIABLES + 3],
    environment: usize,
    path: usize,
    is_loaded: bool,
    file: &mut [u8; PATH],
) -> bool {
    let mut count = 0;
    let mut has_preload = false;
    // The kernel refuses what cannot be read.
    if !raw::is_plausible(environment) {
        return false;
    }
    loop {
        // SAFETY: the guest's list, which ends with a null pointer, as for the kernel.
        let variable = unsafe { *(environment as *const *const c_char).add(count) };
        if variable.is_null() {
            break;
        }
        if count == VARIABLES || !raw::is_plausible(variable as usize) {
            return false;
        }
        has_preload |= starts_with(variable, PRELOAD);
        list[count] = variable;
        count += 1;
    }
    if let Some(preload) = &guest().preload
        && !has_preload
    {
        list[count] = preload.as_ptr();
        count += 1;
        has_preload = true;
    }
    if is_loaded {
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
    list[count] = core::ptr::null();
    true
}
