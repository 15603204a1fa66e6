//! Programs with a sanitizer in them (AddressSanitizer, ThreadSanitizer, MemorySanitizer) run as
//! they would without this library: a sanitizer must be the first to stand before the C library's
//! functions, and follows every thread and byte, also ours.
//!
//! `sojourn run` knows such a program by its file and does not preload; this here is for its
//! children. See `start`.

use crate::objects;
use core::ffi::{CStr, c_char};

/// A function that every sanitizer which watches memory or threads stands before, and nobody else.
/// Their own functions do not tell: GCC shows none of those that it links into a program.
const WATCHED: &CStr = c"__xpg_strerror_r";

/// Whether a sanitizer is in this process, in a library or linked into the program.
pub(crate) fn is_here() -> bool {
    objects::first(WATCHED) != objects::of_c_library(WATCHED)
}

/// Asked by AddressSanitizer when it starts, unless the program answers. Otherwise it would end a
/// program into which any library is loaded before its own.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
