//! The loader, `sojourn-abi`: runs a program that makes its own system calls in one process with
//! the protocol library.
//!
//! `sojourn run` starts the loader with the program's own arguments, the preload library in
//! `LD_PRELOAD` and the program's path in `SOJOURN_ABI_FILE`. The loader loads the program,
//! rewrites its system calls to calls of the loader's, and becomes the program. A program that
//! cannot be loaded runs without Sojourn, with one line about the cause on standard error. Not
//! here: finding and rewriting system calls (`crates/abi`), serving most of them
//! (`crates/preload`). Read `docs/understand/abi.md` first.
//!
//! # The way of a call
//! The program's text → its trampoline → `enter` → `dispatch` → the preload library, or one of
//! `memory`, `threads`, `children`, `exec`, `files`, `signals`.

#![no_main]
#![allow(unsafe_code, reason = "another program's memory, registers and system calls")]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
compile_error!("the loader is written for x86-64 Linux with the GNU C library so far");

mod begin;
mod block;
mod children;
mod class;
mod dispatch;
mod enter;
mod exec;
mod files;
mod guest;
mod load;
mod memory;
mod raw;
mod refusal;
mod rewriting;
mod signals;
mod threads;
mod trap;

use core::ffi::{c_char, c_int};

/// Replaces Rust's own start, which ignores `SIGPIPE` and installs handlers: the program must find
/// the signals as without Sojourn.
#[unsafe(no_mangle)]
extern "C" fn main(
    count: c_int,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the arguments of the C library's call of `main`.
    unsafe { begin::begin(count as usize, words, environment) }
}
