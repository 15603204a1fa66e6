//! The table of functions by which the preload library lends the memory of a session's ring.
//!
//! The preload library exports one such table under the name [`NAME`]; its layout never changes,
//! and another layout gets another name. Its user may be built at another time than the preload
//! library: only the C types here are between them. Not here: what the functions do
//! (`crates/preload/src/lend.rs`). A crate of its own, because the build script of
//! `sojourn-buffers` names a shared library, and such names come to every library that depends on
//! the crate.

use core::ffi::{CStr, c_int};

pub use sojourn_shm::Deadline;

/// The symbol of the table.
pub const NAME: &CStr = c"sojourn_buffers_v1";

/// A result: the memory is lent, or has been given back.
pub const LENT: c_int = 0;
/// A result: there is no memory to be lent. The caller uses the descriptor as any program does.
pub const ELSEWHERE: c_int = 1;
/// A result: the time is over.
pub const TIMED_OUT: c_int = 2;
/// A result: a signal handler has run, and the call does not go on.
pub const INTERRUPTED: c_int = 3;

/// Bytes that follow one another in memory; a `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawPiece {
    /// The first byte.
    pub at: *mut u8,
    /// The number of bytes.
    pub len: usize,
}

impl RawPiece {
    /// No bytes.
    pub const NONE: Self = Self { at: core::ptr::null_mut(), len: 0 };
}

/// Memory of a ring that is lent to the program. It may be moved, but not copied, and ends with
/// [`Table::give_back`], a successful [`Table::commit`], or [`Table::forget`].
#[repr(C)]
#[derive(Debug)]
pub struct Lent {
    /// The memory, in order. The second piece has bytes if the memory goes on at the beginning of
    /// the ring.
    pub pieces: [RawPiece; 2],
    /// The lender's own words.
    pub held: [u64; 4],
}

impl Lent {
    /// Nothing lent.
    pub const NONE: Self = Self { pieces: [RawPiece::NONE; 2], held: [0; 4] };
}

/// The functions. Deadlines are nanoseconds of `CLOCK_MONOTONIC`: 0 does not wait, and `u64::MAX`
/// has no limit.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// Waits until the descriptor's ring has bytes, and lends `max` of them at most. Lends nothing
    /// (`ELSEWHERE`) if they are fewer than `at_least`.
    pub loan: unsafe extern "C" fn(c_int, usize, usize, u64, *mut Lent) -> c_int,
    /// Takes lent bytes back, of which the first so many are used up. `ELSEWHERE`: the session has
    /// gone home since, and the used bytes will be received once more.
    pub give_back: unsafe extern "C" fn(*mut Lent, usize) -> c_int,
    /// Waits until the descriptor's ring has room for `at_least` bytes, and lends room for `max` at
    /// most.
    pub reserve: unsafe extern "C" fn(c_int, usize, usize, u64, *mut Lent) -> c_int,
    /// Sends the first so many bytes of lent room. `ELSEWHERE`: the session has gone home since.
    /// The room stays lent; the caller sends what is there by the descriptor.
    pub commit: unsafe extern "C" fn(*mut Lent, usize) -> c_int,
    /// Ends the lending of room, of which nothing is sent.
    pub forget: unsafe extern "C" fn(*mut Lent),
}
