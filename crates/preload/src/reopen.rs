//! Files that are opened by name.
//!
//! Most files do not concern the library. But /proc, and the names that lead there (`/dev/stdin`,
//! `/dev/fd/N`), contain the process's own pipes, and opening such a name makes another number of
//! the same end. Not here: `fopen` and its relatives, which open files inside the C library
//! (`stdio`).

use crate::descriptors::numbering_first;
use crate::guard::kernel;
use crate::guard::{is_initialized, is_open, within};
use crate::library::library;
use crate::next::next;
use crate::raw::Kernel;
use crate::shrinking;
use crate::trampoline::alias;
use core::ffi::{c_char, c_int};

type OpenFn = unsafe extern "C-unwind" fn(*const c_char, c_int, u32) -> c_int;
type OpenAtFn = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, u32) -> c_int;
type Open2Fn = unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int;
type OpenAt2Fn = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int) -> c_int;
type CreateFn = unsafe extern "C-unwind" fn(*const c_char, u32) -> c_int;

/// Returns true if `fd`, which was just opened, is an end of a pipe that the process has under
/// other numbers, too. These numbers count as duplicates from now on.
#[inline]
pub(crate) fn is_known_pipe(fd: c_int) -> bool {
    fd >= 0 && is_initialized() && is_open() && library().has_pipes() && is_opened_by_name(fd)
}

#[cold]
#[inline(never)]
fn is_opened_by_name(fd: c_int) -> bool {
    within(|library| library.opened_by_name(fd)) == Some(true)
}

#[inline]
fn opened(fd: c_int) -> c_int {
    is_known_pipe(fd);
    fd
}

/// Serves the calls that open a file; `kernel` makes the kernel's call.
pub(crate) fn open_by(flags: c_int, kernel: impl Kernel) -> isize {
    shrinking::opened(flags);
    opened(numbering_first(kernel) as c_int) as isize
}

// In C the mode is a variable argument. If the program does not pass one, the kernel ignores the
// value.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    open_by(flags, unsafe { kernel!(older SYS_open, c"open" as OpenFn; path, flags, mode) })
        as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: u32,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    open_by(flags, unsafe { kernel!(SYS_openat, c"openat" as OpenAtFn; folder, path, flags, mode) })
        as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    open_by(flags, || unsafe { next!(c"__open_2" as Open2Fn)(path, flags) } as isize) as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    open_by(flags, || unsafe { next!(c"__openat_2" as OpenAt2Fn)(folder, path, flags) } as isize)
        as c_int
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn creat(path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    open_by(libc::O_TRUNC, || unsafe { next!(c"creat" as CreateFn)(path, mode) } as isize) as c_int
}

/// Serves `creat` by number; `kernel` makes the kernel's call.
#[cfg(target_arch = "x86_64")]
pub(crate) fn create_by(kernel: impl Kernel) -> isize {
    open_by(libc::O_TRUNC, kernel)
}

/// Serves openat2(2), whose flags are in a structure; `kernel` makes the kernel's call.
pub(crate) fn openat2_by(kernel: impl Kernel) -> isize {
    open_by(libc::O_TRUNC, kernel)
}

alias!(
    open64 = open,
    __open = open,
    __open64 = open,
    openat64 = openat,
    __open64_2 = __open_2,
    __openat64_2 = __openat_2,
    creat64 = creat,
);
