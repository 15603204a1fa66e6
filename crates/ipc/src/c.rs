//! The C interface: `include/sojourn/ipc.h` over the Rust one.
//!
//! # Theory of operation
//! C cannot be held to lifetimes, so a handle remembers what Rust would have the borrow checker
//! know: which message it has under construction (a number that the `sj_out` carries), and which it
//! received last (a number that the `sj_in` carries). A stale one is refused. Tokens are numbers
//! too, looked up and claimed atomically when they are used (`token`), so that copies of one do no
//! harm. Of the big structures only the fields that are valid are ever written, and nothing is
//! copied twice.
//!
//! What cannot be checked: that pointers given to us point at what the header says, and that a
//! freed handle is not used. No panic leaves: see `errno`. What all parts share is in `handle`,
//! `errno` and `scratch`; the functions are in `client`, `server`, `endpoint`, `received` and
//! `memory`, documented in the header.

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
    crate::deadline::now_ns().cast_signed()
}

#[unsafe(no_mangle)]
extern "C" fn sj_reference_threshold() -> usize {
    crate::rt::reference_threshold()
}
