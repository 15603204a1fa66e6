//! The program `sojourn`: its entry, and the library of this package, which is the rest.

#![cfg_attr(not(test), no_main)]
#![allow(unsafe_code, reason = "main itself")]

use std::ffi::{c_char, c_int};

/// The C entry, not Rust's: its start-up would ignore `SIGPIPE` and open `/dev/null` in place of
/// closed standard descriptors, and the program that `run` becomes would inherit both. (The C
/// library has given the arguments to `std::env` before.)
// SAFETY: the one `main` of this program, of the type that the C library calls.
#[cfg_attr(not(test), unsafe(export_name = "main"))]
#[cfg_attr(test, allow(dead_code, reason = "tests have a main of their own"))]
extern "C" fn entry(_count: c_int, _words: *const *const c_char) -> c_int {
    let words: Vec<_> = std::env::args_os().collect();
    sojourn_cli::main(&words)
}
