//! Detection of sanitizers (AddressSanitizer, ThreadSanitizer, MemorySanitizer). A program with a
//! sanitizer runs as without this library: a sanitizer must be the first to replace the C library's
//! functions, and it watches every thread and every byte, including this library's.
//!
//! `sojourn run` recognizes such a program by its file and does not preload this library. This file
//! covers the program's children. See `start`.

use crate::objects;
use core::ffi::{CStr, c_char};

/// A function that all sanitizers that watch memory or threads replace, and nothing else does. The
/// sanitizers' own symbols are no sign: GCC does not export those that it links into a program.
const WATCHED: &CStr = c"__xpg_strerror_r";

/// Returns true if a sanitizer is in this process, as a library or linked into the program.
pub(crate) fn is_here() -> bool {
    objects::first(WATCHED) != objects::of_c_library(WATCHED)
}

/// Answers AddressSanitizer's question for options at its start, unless the program answers it. By
/// default, AddressSanitizer ends a program into which any library is loaded before its own.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
