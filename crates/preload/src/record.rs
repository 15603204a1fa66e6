//! The record of programs' starts (`sojourn_abi::starts`), for children of dynamic programs: its
//! system calls.
//!
//! Nothing here allocates, because a child of vfork(2) shares its parent's memory. Not here: which
//! programs are looked up in the record (`loaded`).

use crate::raw;
use sojourn_abi::starts::Files;
use sojourn_abi::starts::system::System;

/// Returns the kernel's files.
pub(crate) fn files() -> impl Files {
    // SAFETY: the arguments are those of `System`, which are local, or the environment's.
    let call = |number, arguments| unsafe { raw::call(number, arguments) };
    System { call, status: raw::status }
}
