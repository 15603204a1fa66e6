//! `libsojourn_ipc`, the C interface: `include/sojourn/ipc.h` over the crate `sojourn-ipc`.
//!
//! Not here: the protocol (`sojourn-ipc`), and the compiler whose C stubs use the headers below
//! `include/sojourn` (`sojourn-idl`). Read `docs/reference/ipc-c.md` first.
//!
//! # Theory of operation
//! C has no lifetimes, so a handle keeps the facts that the borrow checker knows in Rust: the
//! number of the message under construction (which the `sj_out` carries), and the number of the
//! message received last (which the `sj_in` carries). A stale `sj_out` or `sj_in` is refused.
//! Tokens are numbers too, looked up and claimed atomically when they are used (`token`), so that
//! copies of a token do no harm. Only the valid fields of the big structures are written, and no
//! message is copied twice.
//!
//! Two rules cannot be checked: that the caller's pointers are as the header requires, and that a
//! freed handle is not used. No panic leaves the library (`errno`). `handle`, `errno` and `scratch`
//! are shared by all parts; the functions are in `client`, `server`, `endpoint`, `received` and
//! `memory`, documented in the header.
#![allow(unsafe_code, reason = "C has pointers to what Rust would borrow")]

mod answer;
mod client;
mod drafting;
mod endpoint;
mod errno;
mod handle;
mod memory;
mod message;
#[cfg(test)]
mod mixed_tests;
mod options;
mod parts;
mod received;
mod scratch;
mod server;
mod server_handle;
mod status;
#[cfg(test)]
mod tests;
mod token;
mod types;

#[unsafe(no_mangle)]
extern "C" fn sj_now_ns() -> i64 {
    sojourn_ipc::now_ns().cast_signed()
}

#[unsafe(no_mangle)]
extern "C" fn sj_reference_threshold() -> usize {
    sojourn_ipc::rt::reference_threshold()
}
