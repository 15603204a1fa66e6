//! execve(2): the guest's children are under Sojourn as it is itself.
//!
//! A dynamic program gets the preload library by its environment. One that makes its own system
//! calls is started by the loader, which gets its file's path in a variable that the program does
//! not see.
//!
//! In a child of vfork(2) memory is the parent's: nothing is left allocated.

use crate::class::{Class, class_of};
use crate::files;
use crate::guest::{call, guest};
use core::ffi::{CStr, c_char};

/// The variable with the path of the file to be loaded.
pub(crate) const FILE: &[u8] = b"SOJOURN_ABI_FILE=";
/// The loader's list of libraries.
pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// More variables than that are passed on as they are.
const VARIABLES: usize = 2000;
const PATH: usize = 4096 + FILE.len();

/// execve(2), with these arguments.
#[inline(never)]
pub(crate) fn exec(arguments: &[usize; 6]) -> isize {
    let [mut path, words, environment, ..] = *arguments;
    let mut list = [core::ptr::null::<c_char>(); VARIABLES + 3];
    let mut file = [0u8; PATH];
    let mut class = class_of(path);
    // Where the kernel cannot open it, it cannot be executed either.
    if class == Class::Dynamic
        && let Some(own) = files::own(path)
    {
        path = own.as_ptr() as usize;
        class = class_of(path);
    }
    let changed = match class {
        Class::Plain | Class::Dynamic => guest().preload.is_some(),
        Class::Loaded => true,
    };
    let built = changed && build(&mut list, environment, path, class == Class::Loaded, &mut file);
    let is_loaded = built && class == Class::Loaded;
    let program = if is_loaded { guest().loader.as_ptr() as usize } else { path };
    let environment = if built { list.as_ptr() as usize } else { environment };
    // SAFETY: the guest's own call, with lists as it gave them, or ours.
    unsafe { call(libc::SYS_execve, &[program, words, environment, 0, 0, 0]) }
}

/// Builds the environment: the guest's, with the preload list that it was not to see, and for the
/// loader the file's path. False: it is to stay as it is.
fn build(
    list: &mut [*const c_char; VARIABLES + 3],
    environment: usize,
    path: usize,
    is_loaded: bool,
    file: &mut [u8; PATH],
) -> bool {
    let mut count = 0;
    let mut has_preload = false;
    if environment == 0 {
        return false;
    }
    loop {
        // SAFETY: a list of the guest's that ends with a null pointer, as for the kernel.
        let variable = unsafe { *(environment as *const *const c_char).add(count) };
        if variable.is_null() {
            break;
        }
        if count == VARIABLES {
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
        // SAFETY: a path of the guest's, which the kernel has taken (`class_of`).
        let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes_with_nul();
        // Without the library the loader would be for nothing.
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

/// Whether a string begins so.
pub(crate) fn starts_with(string: *const c_char, with: &[u8]) -> bool {
    // SAFETY: a string; compared no further than its zero.
    with.iter().enumerate().all(|(at, byte)| unsafe { *string.add(at) as u8 == *byte })
}
