//! The loader, `sojourn-abi`: a program that makes its own system calls, in one process with the
//! protocol library.
//!
//! `sojourn run` starts it with the program's own arguments, the preload library in `LD_PRELOAD`
//! and the program's path in `SOJOURN_ABI_FILE`. It loads the program, rewrites its system calls to
//! calls of its own, and becomes it. What cannot be loaded runs plainly, and the cause is one line
//! on standard error. Not here: how texts are read and rewritten (`crates/abi`), what becomes of
//! most calls (`crates/preload`). Read `docs/understand/abi.md` first.
//!
//! # The way of a call
//! The program's text → its trampoline → `enter` → `dispatch` → the preload library, or here:
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

/// Not Rust's own start, which ignores `SIGPIPE` and installs handlers: the program is to find both
/// as it would without us.
#[unsafe(no_mangle)]
extern "C" fn main(
    count: c_int,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: what the kernel gave, by the C library.
    unsafe { begin::begin(count as usize, words, environment) }
}
