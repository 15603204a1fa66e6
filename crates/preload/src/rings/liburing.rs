//! Detection of liburing in the process.
//!
//! Not here: the consequences (`library::rings`).

use crate::next::c_library;
use core::ffi::{CStr, c_int, c_void};

type LookFn = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type IterateFn = unsafe extern "C" fn(LookFn, *mut c_void) -> c_int;

/// Returns true if liburing is loaded. liburing makes its system calls itself, so its rings are
/// noticed late.
pub(crate) fn has_library() -> bool {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's structure, valid during this call; the name is a string or null.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: the loader's string.
            let path = unsafe { CStr::from_ptr(name) }.to_bytes();
            let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            if file.starts_with(b"liburing.so") || file.starts_with(b"liburing-ffi.so") {
                // SAFETY: `found` points to the flag of `has_library`.
                unsafe { *found.cast::<bool>() = true };
            }
        }
        0
    }
    let mut found = false;
    // SAFETY: the function only reads, and the flag outlives the call.
    unsafe { c_library!(c"dl_iterate_phdr" as IterateFn)(look, (&raw mut found).cast()) };
    found
}
