//! Calls that can take pages away from the program's memory: a file that is made shorter has none
//! behind its new end, where it is mapped (`SIGBUS`, mmap(2)); System V's segments go, or take the
//! place of other memory (`SHM_REMAP`); keys of protection come with rights; pages become guards
//! (`MADV_GUARD_INSTALL`) or are given up (`MADV_HWPOISON`, madvise(2)); the heap ends earlier
//! (brk(2)).
//!
//! After such a call all threads probe the program's buffers again (`buffers`). Not here: `munmap`,
//! `mprotect` and `mremap` (`buffers`), `mmap` (`rings`).

use crate::buffers::{self, forgotten_by};
use crate::guard::kernel;
use crate::next::next;
use crate::trampoline::alias;
use crate::{errno, raw};
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{iovec, off64_t};

/// Defines functions after whose calls memory may be inaccessible.
macro_rules! forgetting {
    ($($name:ident = $number:ident, $text:literal ($($argument:ident: $type:ty),+) -> $result:ty;)+) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name($($argument: $type),+) -> $result {
            type Next = unsafe extern "C-unwind" fn($($type),+) -> $result;
            // SAFETY: the program's arguments, passed on unchanged.
            forgotten_by(unsafe { kernel!($number, $text as Next; $($argument),+) }) as $result
        }
    )+};
}

forgetting! {
    truncate = SYS_truncate, c"truncate" (path: *const c_char, len: off64_t) -> c_int;
    ftruncate = SYS_ftruncate, c"ftruncate" (file: c_int, len: off64_t) -> c_int;
    shmat = SYS_shmat, c"shmat" (id: c_int, at: *const c_void, flags: c_int) -> *mut c_void;
    shmdt = SYS_shmdt, c"shmdt" (at: *const c_void) -> c_int;
    pkey_mprotect = SYS_pkey_mprotect, c"pkey_mprotect"
        (at: *mut c_void, len: usize, protection: c_int, key: c_int) -> c_int;
    process_madvise = SYS_process_madvise, c"process_madvise"
        (process: c_int, parts: *const iovec, count: usize, advice: c_int, flags: c_uint) -> isize;
}

/// Notes that madvise(2) is called with `advice`.
#[inline]
pub(crate) fn advised(advice: c_int) {
    const GUARD_INSTALL: c_int = 102;
    if matches!(advice, libc::MADV_HWPOISON | GUARD_INSTALL) {
        buffers::forget();
    }
}

// By system call: a program's allocator may give advice before symbols can be looked up.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    advised(advice);
    let arguments = [at as usize, len, advice as usize, 0, 0, 0];
    // SAFETY: the program's arguments, passed on unchanged.
    errno::kernel(unsafe { raw::call(libc::SYS_madvise, arguments) }) as c_int
}

// The kernel's call of the name `brk` has another result than the C library's function. The library
// itself calls neither.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn brk(end: *mut c_void) -> c_int {
    buffers::forget();
    // SAFETY: the program's arguments, passed on unchanged.
    unsafe { next!(c"brk" as unsafe extern "C-unwind" fn(*mut c_void) -> c_int)(end) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn sbrk(change: isize) -> *mut c_void {
    if change < 0 {
        buffers::forget();
    }
    // SAFETY: the program's arguments, passed on unchanged.
    unsafe { next!(c"sbrk" as unsafe extern "C-unwind" fn(isize) -> *mut c_void)(change) }
}

alias!(truncate64 = truncate, ftruncate64 = ftruncate);

/// Returns true for the calls by number of the functions above.
pub(crate) const fn is_one(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_truncate
            | libc::SYS_ftruncate
            | libc::SYS_shmdt
            | libc::SYS_shmat
            | libc::SYS_pkey_mprotect
            | libc::SYS_process_madvise
            | libc::SYS_brk
    )
}

/// Notes that a file is opened with `flags`: with `O_TRUNC` it is made shorter.
#[inline]
pub(crate) fn opened(flags: c_int) {
    if flags & libc::O_TRUNC != 0 {
        buffers::forget();
    }
}

/// Notes that a stream is opened with `mode` (fopen(3)).
///
/// # Safety
/// `mode` is a string.
#[inline]
pub(crate) unsafe fn stream_opened(mode: *const c_char) {
    // SAFETY: the caller's promise; the C library reads it, too.
    if unsafe { mode.read() } == b'w' as c_char {
        buffers::forget();
    }
}
