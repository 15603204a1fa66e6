//! `/proc/self/exe` is the guest's file, not the loader's.

use crate::guest::{call, guest};
use crate::raw;
use core::ffi::CStr;

/// Longer than any name of it.
const LONGEST: usize = 32;
const PAGE: usize = 4096;

/// The first bytes at an address of the guest's, as far as there are any.
fn beginning(at: usize) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    let first = LONGEST.min(PAGE - at % PAGE);
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LONGEST };
    let remote = [
        libc::iovec { iov_base: at as *mut _, iov_len: first },
        libc::iovec { iov_base: (at + first) as *mut _, iov_len: LONGEST - first },
    ];
    let (local, remote) = ((&raw const local) as usize, (&raw const remote) as usize);
    let process = raw::process_number() as usize;
    // SAFETY: copies what can be copied into the bytes.
    let got = unsafe { raw::call(libc::SYS_process_vm_readv, [process, local, 1, remote, 2, 0]) };
    (bytes, usize::try_from(got).unwrap_or(0))
}

/// The guest's file, if a path of the guest's means the program that runs.
pub(crate) fn own(path: usize) -> Option<&'static CStr> {
    let (bytes, len) = beginning(path);
    let path = CStr::from_bytes_until_nul(&bytes[..len]).ok()?.to_str().ok()?;
    let who = path.strip_prefix("/proc/")?.strip_suffix("/exe")?;
    let is_this = who == "self"
        || who == "thread-self"
        || who.parse::<i32>().is_ok_and(|number| number == raw::process_number());
    is_this.then(|| guest().file.as_c_str())
}

/// readlink(2) and readlinkat(2), whose path is argument `at`.
pub(crate) fn read_link(at: usize, arguments: &[usize; 6]) -> isize {
    let Some(file) = own(arguments[at]) else {
        let number = if at == 0 { libc::SYS_readlink } else { libc::SYS_readlinkat };
        // SAFETY: the guest's own call.
        return unsafe { call(number, arguments) };
    };
    let (to, room) = (arguments[at + 1], arguments[at + 2] as i32);
    if room <= 0 {
        return -(libc::EINVAL as isize);
    }
    let len = file.to_bytes().len().min(room as usize);
    // SAFETY: the guest's own room, as for the kernel.
    unsafe { core::ptr::copy_nonoverlapping(file.as_ptr().cast::<u8>(), to as *mut u8, len) };
    len as isize
}

/// open(2) and its kind, whose path is argument `at`.
pub(crate) fn open(at: usize, number: i64, arguments: &[usize; 6]) -> isize {
    let mut arguments = *arguments;
    if let Some(file) = own(arguments[at]) {
        arguments[at] = file.as_ptr() as usize;
    }
    // SAFETY: the guest's own call.
    unsafe { call(number, &arguments) }
}
