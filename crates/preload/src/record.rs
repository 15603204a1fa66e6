//! The record of programs' starts (`sojourn_abi::starts`), for children of dynamic programs: its
//! system calls.
//!
//! Nothing here allocates, because a child of vfork(2) shares its parent's memory. Not here: which
//! programs are looked up in the record (`loaded`).

use crate::raw;
use core::mem::MaybeUninit;
use sojourn_abi::starts::system::System;
use sojourn_abi::starts::{Fd, Files};

/// Returns the kernel's files.
pub(crate) fn files() -> impl Files {
    // SAFETY: the arguments are those of `System`, which are local, or the environment's.
    let call = |number, arguments| unsafe { raw::call(number, arguments) };
    System { call, status }
}

/// Returns what fstat(2) tells of a descriptor.
pub(crate) fn status(fd: Fd) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let arguments = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: `status` has room for the answer, and is zeroes if there is none.
    let (result, status) = unsafe { (raw::call(libc::SYS_fstat, arguments), status.assume_init()) };
    (result == 0).then_some(status)
}
