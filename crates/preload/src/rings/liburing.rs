//! Whether liburing is in the process.

use crate::next::c_library;
use core::ffi::{CStr, c_int, c_void};

type LookFn = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type IterateFn = unsafe extern "C" fn(LookFn, *mut c_void) -> c_int;

/// Whether liburing is in the process: it makes its system calls itself, so a ring of its making is
/// seen late.
pub(crate) fn has_library() -> bool {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's, for the time of this call; the name is a string or null.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: a string of the loader's.
            let path = unsafe { CStr::from_ptr(name) }.to_bytes();
            let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            if file.starts_with(b"liburing.so") || file.starts_with(b"liburing-ffi.so") {
                // SAFETY: the flag that `has_library` gave.
                unsafe { *found.cast::<bool>() = true };
            }
        }
        0
    }
    let mut found = false;
    // SAFETY: a function that only reads, and a flag that outlives the call.
    unsafe { c_library!(c"dl_iterate_phdr" as IterateFn)(look, (&raw mut found).cast()) };
    found
}
