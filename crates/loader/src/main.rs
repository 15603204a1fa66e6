//! The loader, `sojourn-abi`: runs a program that makes its own system calls in one process with
//! the protocol library.
//!
//! `sojourn run` starts the loader with the program's own arguments, the preload library in
//! `LD_PRELOAD` and the program's path in `SOJOURN_ABI_FILE`. The loader loads the program,
//! rewrites its system calls to calls of the loader's, and becomes the program. The C library and
//! the preload library come into the process with the first call that needs them (`host`). A
//! program that cannot be loaded runs without Sojourn, with one line about the cause on standard
//! error; on other processors than x86-64 that is every program so far. Not here: finding and
//! rewriting system calls (`crates/abi`), serving most of them (`crates/preload`). Read
//! `docs/understand/abi.md` first.
//!
//! # The way of a start
//! The kernel → `first` → `begin` (`load`, `cache`, `rewriting`) → the program. With the first call
//! that needs it: `host` → the dynamic loader → `main` → `host`.
//!
//! # The way of a call
//! The program's text → its trampoline → `enter` → the kernel, for calls that concern nobody here
//! (`kinds`); or → `dispatch` → the preload library, or one of `memory`, `threads`, `children`,
//! `exec`, `files`, `signals`. Before the host is there: `dispatch` → `early`.

#![no_main]
#![allow(unsafe_code, reason = "another program's memory, registers and system calls")]

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!("the loader is written for Linux with the GNU C library");

#[cfg(target_arch = "x86_64")]
mod bases;
#[cfg(target_arch = "x86_64")]
mod begin;
#[cfg(target_arch = "x86_64")]
mod block;
#[cfg(target_arch = "x86_64")]
mod cache;
#[cfg(target_arch = "x86_64")]
mod children;
#[cfg(target_arch = "x86_64")]
mod class;
#[cfg(target_arch = "x86_64")]
mod dispatch;
#[cfg(target_arch = "x86_64")]
mod early;
#[cfg(target_arch = "x86_64")]
mod enter;
#[cfg(target_arch = "x86_64")]
mod exec;
#[cfg(target_arch = "x86_64")]
mod files;
#[cfg(target_arch = "x86_64")]
mod first;
#[cfg(target_arch = "x86_64")]
mod guest;
#[cfg(target_arch = "x86_64")]
mod handed;
#[cfg(target_arch = "x86_64")]
mod heap;
#[cfg(target_arch = "x86_64")]
mod host;
#[cfg(target_arch = "x86_64")]
mod kernels;
#[cfg(target_arch = "x86_64")]
mod kinds;
#[cfg(target_arch = "x86_64")]
mod load;
#[cfg(target_arch = "x86_64")]
mod mem;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "loading needs more"))]
mod plain;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "loading needs more"))]
mod raw;
#[cfg(target_arch = "x86_64")]
mod refusal;
#[cfg(target_arch = "x86_64")]
mod rewriting;
#[cfg(target_arch = "x86_64")]
mod sharing;
#[cfg(target_arch = "x86_64")]
mod signals;
#[cfg(target_arch = "x86_64")]
mod starts;
#[cfg(target_arch = "x86_64")]
mod threads;
#[cfg(target_arch = "x86_64")]
mod told;
#[cfg(target_arch = "x86_64")]
mod trap;

use core::ffi::{c_char, c_int};

#[cfg(target_arch = "x86_64")]
#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

/// Replaces Rust's own start, which ignores `SIGPIPE` and installs handlers: the program must find
/// the signals as without Sojourn.
#[unsafe(no_mangle)]
extern "C" fn main(
    count: c_int,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    #[cfg(target_arch = "x86_64")]
    host::arrive();
    // SAFETY: the arguments of the C library's call of `main`.
    let Some(given) = (unsafe { plain::given(count as usize, words, environment) }) else {
        eprintln!(
            "sojourn-abi: started by hand; it is for `sojourn run` to start (sojourn run PROGRAM)"
        );
        return plain::NOT_RUN;
    };
    #[cfg(target_arch = "x86_64")]
    return match first::refused() {
        Some(refusal) => plain::plainly(&given, refusal),
        None => begin::begin(&given),
    };
    #[cfg(not(target_arch = "x86_64"))]
    return plain::plainly(&given, "system calls are rewritten on x86-64 only so far");
}
