//! The preload library: C calls in, protocol library calls out, `errno` out.
//!
//! Every function here has the name and the meaning of a function of the C library. This crate
//! decides only which library call a C call becomes. Sessions, their moves and their way home are
//! in `sojourn-library`. Read `docs/understand/streams.md` first.
//!
//! # Theory of operation
//! A call asks `guard::is_open` first. The guard is closed inside the library itself, in a child of
//! vfork(2), before the constructor has run, and after a failure. With a closed guard the kernel
//! serves the call, by a bare system call or by the next library's function of the same name. With
//! an open guard the call goes to the library within `guard::within`, which marks the thread as
//! inside, catches panics, and restores `errno`.
//!
//! Calls that the kernel is to serve go to the *next* function of the same name (usually the C
//! library's), not to a bare system call: only the C library's functions are cancellation points
//! (pthreads(7)), and only they are visible to other preloaded libraries. Frames of this crate
//! around such a call have nothing to drop, so that a cancelled thread can be unwound through them.

#![allow(unsafe_code, reason = "the C interface: raw pointers come in, and calls go out to C")]
// A build for unit tests exports nothing: the functions would take the place of the C library's in
// the test program itself.
#![cfg_attr(test, allow(dead_code, non_snake_case, reason = "C's names, which nobody calls"))]

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    target_env = "gnu"
)))]
compile_error!("the preload library is for Linux on x86-64 and AArch64 with the GNU C library");

mod beside;
mod buffers;
mod call_mask;
mod code;
mod confined;
mod connections;
mod control;
mod datagrams;
mod deferred;
mod descriptors;
mod door;
mod errno;
mod exec;
mod files;
mod first_calls;
mod flags;
mod follow;
mod guard;
mod guests;
mod handlers;
mod heap;
mod host;
mod inside;
mod io;
mod kernel_aio;
mod lend;
mod libio;
mod library;
mod link_map;
mod linker;
mod loaded;
mod mask;
mod messages;
mod next;
mod notice;
mod objects;
mod older;
mod options;
#[cfg(target_arch = "x86_64")]
mod own_calls;
mod pause;
mod plugins;
mod process;
mod prototypes;
mod raw;
mod readiness;
mod record;
mod relocation;
mod reopen;
mod rest;
#[cfg(target_arch = "x86_64")]
mod rewriting;
mod rings;
mod sanitizer;
mod select;
mod shrinking;
mod signals;
mod sockets;
mod stack;
mod start;
mod stdio;
mod syscalls;
mod taken;
mod threads;
mod tls;
mod trampoline;
mod transfer;
mod turns;
mod unwinder;
mod validated;
mod variables;
mod vectors;
mod vfork;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;
