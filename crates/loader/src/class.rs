//! The class of a file that the guest wants to execute. Not here: the decision itself
//! (`sojourn_abi::class`).

use crate::raw;
use core::ffi::{CStr, c_char};
pub(crate) use sojourn_abi::class::Class;
use sojourn_abi::class::{FIRST, class};

/// Returns the class of the file at a path of the guest's. Set-user-ID and set-group-ID programs
/// are plain. Allocates little, and frees it.
#[inline(never)]
pub(crate) fn class_of(path: usize) -> Class {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: the kernel checks the guest's path.
    let fd = unsafe { raw::call(libc::SYS_open, [path, flags, 0, 0, 0, 0]) };
    if fd < 0 {
        return Class::Plain;
    }
    let fd = fd as usize;
    let mut bytes = [0u8; FIRST];
    let mode = raw::status(fd).map_or(0, |status| status.st_mode);
    // SAFETY: there is room for the answer; the descriptor was opened above.
    let got = unsafe {
        let got = raw::call(libc::SYS_pread64, [fd, bytes.as_mut_ptr() as usize, FIRST, 0, 0, 0]);
        raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        got
    };
    if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return Class::Plain;
    }
    // SAFETY: the guest's string, which the kernel has read for `open`.
    let path = unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes();
    class(path, &bytes[..usize::try_from(got).unwrap_or(0)])
}
