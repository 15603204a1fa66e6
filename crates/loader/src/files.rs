//! `/proc/self/exe` (proc(5)) for the guest: its own file instead of the loader's.

use crate::guest::{call, guest};
use crate::raw;
use core::ffi::{CStr, c_char};

/// Returns the guest's file if the path that is argument `at` names the running program. Only for
/// paths that the kernel has read without an error.
fn own(at: usize, arguments: &[usize; 6]) -> Option<&'static CStr> {
    // SAFETY: the guest's string, which the kernel has read.
    let path = unsafe { CStr::from_ptr(arguments[at] as *const c_char) }.to_bytes();
    let is_this = match path {
        b"exe" => is_own_folder(if at == 0 { libc::AT_FDCWD as usize } else { arguments[0] }),
        _ => is_own_link(path)?,
    };
    is_this.then(|| guest().file.as_c_str())
}

/// Returns true for the link in the folder of this process or of one of its threads.
fn is_own_link(path: &[u8]) -> Option<bool> {
    let folder = path.strip_prefix(b"/proc/")?.strip_suffix(b"/exe")?;
    let mut parts = folder.split(|byte| *byte == b'/');
    let number = |part: &[u8]| core::str::from_utf8(part).ok()?.parse::<i32>().ok();
    let is_own = match parts.next()? {
        b"self" | b"thread-self" => true,
        process => number(process)? == raw::process_number(),
    };
    let is_thread = match parts.next() {
        None => true,
        Some(b"task") => number(parts.next()?).is_some(),
        Some(_) => false,
    };
    Some(is_own && is_thread && parts.next().is_none())
}

/// Returns true for this process's folder in `/proc`.
fn is_own_folder(folder: usize) -> bool {
    let found = match folder as i32 {
        libc::AT_FDCWD => raw::status_at(c"."),
        _ => raw::status(folder),
    };
    let [found, own] = [found, raw::status_at(c"/proc/self")].map(|one| Some(raw::identity(&one?)));
    found.is_some() && found == own
}

/// Serves readlink(2) and readlinkat(2), whose path is argument `at`.
pub(crate) fn read_link(at: usize, number: i64, arguments: &[usize; 6]) -> isize {
    let (to, room) = (arguments[at + 1], arguments[at + 2] as i32);
    let file = guest().file.as_c_str();
    // The loader's path must not be left behind a shorter one.
    let len = file.to_bytes().len().min(room.max(0) as usize);
    let mut short = *arguments;
    short[at + 2] = if room > 0 { len } else { room as usize };
    // SAFETY: the guest's own call.
    let result = unsafe { call(number, &short) };
    if result < 0 || own(at, arguments).is_none() {
        let is_whole = result < len as isize || len as i32 == room;
        // SAFETY: the guest's own call.
        return if is_whole { result } else { unsafe { call(number, arguments) } };
    }
    // SAFETY: the guest's buffer, which the kernel has just written.
    unsafe { core::ptr::copy_nonoverlapping(file.as_ptr().cast::<u8>(), to as *mut u8, len) };
    len as isize
}

/// Serves open(2) and its relatives, whose path is argument `at`.
pub(crate) fn open(at: usize, number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the guest's own call.
    let result = unsafe { call(number, arguments) };
    let found = if result < 0 { None } else { own(at, arguments) };
    let Some(file) = found else { return result };
    let mut arguments = *arguments;
    arguments[at] = file.as_ptr() as usize;
    // SAFETY: closes the descriptor of the loader's file, which the guest must not get, and repeats
    // the call with the guest's file.
    unsafe {
        call(libc::SYS_close, &[result as usize, 0, 0, 0, 0, 0]);
        call(number, &arguments)
    }
}
