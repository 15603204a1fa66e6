//! `/proc/self/exe` is the guest's file, not the loader's.

use crate::guest::{call, guest};
use crate::raw;
use core::ffi::{CStr, c_char};

/// The guest's file, if a path means the program that runs. Only for paths that the kernel has
/// taken: they can be read.
pub(crate) fn own(path: usize) -> Option<&'static CStr> {
    // SAFETY: a string of the guest's, as the kernel has found.
    let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes();
    let who = path.strip_prefix(b"/proc/")?.strip_suffix(b"/exe")?;
    let is_process = |who: &str| who.parse::<i32>().is_ok_and(|it| it == raw::process_number());
    let is_this =
        who == b"self" || who == b"thread-self" || core::str::from_utf8(who).is_ok_and(is_process);
    is_this.then(|| guest().file.as_c_str())
}

/// readlink(2) and readlinkat(2), whose path is argument `at`.
pub(crate) fn read_link(at: usize, number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the guest's own call.
    let result = unsafe { call(number, arguments) };
    let found = if result < 0 { None } else { own(arguments[at]) };
    let Some(file) = found else { return result };
    let (to, room) = (arguments[at + 1], arguments[at + 2]);
    let len = file.to_bytes().len().min(room);
    // SAFETY: the guest's own room, into which the kernel has just written.
    unsafe { core::ptr::copy_nonoverlapping(file.as_ptr().cast::<u8>(), to as *mut u8, len) };
    len as isize
}

/// open(2) and its kind, whose path is argument `at`.
pub(crate) fn open(at: usize, number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the guest's own call.
    let result = unsafe { call(number, arguments) };
    let found = if result < 0 { None } else { own(arguments[at]) };
    let Some(file) = found else { return result };
    let mut arguments = *arguments;
    arguments[at] = file.as_ptr() as usize;
    // SAFETY: the loader's file, which the guest is not to have; and the same call for its own.
    unsafe {
        call(libc::SYS_close, &[result as usize, 0, 0, 0, 0, 0]);
        call(number, &arguments)
    }
}
