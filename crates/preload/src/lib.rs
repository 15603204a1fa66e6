//! The preload library: C calls in, protocol library calls out, `errno` out.
//!
//! Every function here has the name and the meaning of one in the C library. What a session is,
//! when it moves and how it comes home is the library's (`sojourn-library`); here is only which C
//! call means what. Read `docs/understand/streams.md` first.
//!
//! # Theory of operation
//! A call asks `guard::is_open` first. It is closed inside the library itself, in a child of
//! `vfork`, before the constructor and after a failure; then the call is the kernel's, by a bare
//! system call or by the next library's function of that name. Otherwise the library is asked,
//! within `guard::within`, which marks the thread, keeps panics in and `errno` as it was.
//!
//! Calls that the kernel is to serve go to the *next* function of that name (usually the C
//! library's), not to a bare system call: only there do they stay cancellation points, and other
//! preloaded libraries see them. Frames of ours around such a call have nothing to clean up, so
//! that a cancelled thread can be unwound.

#![allow(unsafe_code, reason = "the C interface: raw pointers come in, and calls go out to C")]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
compile_error!("the preload library is written for x86-64 Linux with the GNU C library so far");

mod beside;
mod buffers;
mod confined;
mod connections;
mod control;
mod datagrams;
mod deferred;
mod descriptors;
mod errno;
mod exec;
mod files;
mod flags;
mod guard;
mod handlers;
mod heap;
mod host;
mod inside;
mod io;
mod library;
mod loaded;
mod messages;
mod next;
mod notice;
mod objects;
mod options;
mod pause;
mod plugins;
mod process;
mod raw;
mod readiness;
mod reopen;
mod rings;
mod sanitizer;
mod select;
mod signals;
mod sockets;
mod stack;
mod start;
mod stdio;
mod syscalls;
mod threads;
mod tls;
mod trampoline;
mod transfer;
mod turns;
mod unwinder;
mod validated;
mod vectors;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;
