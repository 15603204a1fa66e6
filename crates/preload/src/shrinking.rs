//! Calls that can take pages away from the program's memory: a file that is made shorter has none
//! behind its new end, where it is mapped (`SIGBUS`, mmap(2)); System V's segments go, or take the
//! place of other memory (`SHM_REMAP`); keys of protection come with rights.
//!
//! After such a call all threads probe the program's buffers again (`buffers`). Not here: `munmap`,
//! `mprotect` and `mremap` (`buffers`), `mmap` (`rings`).

use crate::buffers::{self, forgotten_by};
use crate::guard::kernel;
use crate::trampoline::alias;
use core::ffi::{c_char, c_int, c_void};
use libc::off64_t;

/// Defines functions after whose calls memory may be inaccessible.
macro_rules! forgetting {
    ($($name:ident = $number:ident, $text:literal ($($argument:ident: $type:ty),+) -> $result:ty;)+) => {$(
        #[unsafe(no_mangle)]
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
