//! The table of system calls that the guest makes itself, because neither the loader nor the library
//! does more for them than the kernel.
//!
//! The way in looks a call up by the lowest byte of its number, with instructions that change no
//! flag (`enter`). Calls with numbers from 256 on are never made so; the most frequent calls have
//! lower ones. Not here: which calls those are (`dispatch`, `early`).

use core::sync::atomic::{AtomicU8, Ordering};

/// The number of entries.
const LEN: usize = 256;

/// For each number: 0 if the guest makes the call itself.
pub(crate) type Kinds = [u8; LEN];

/// The table for new threads.
static KINDS: [AtomicU8; LEN] = [const { AtomicU8::new(1) }; LEN];

/// Returns the table.
pub(crate) fn all() -> Kinds {
    core::array::from_fn(|at| KINDS[at].load(Ordering::Relaxed))
}

/// Lets the guest make every call itself that `concerns` is false for. Only the threads made
/// afterwards have the new table.
pub(crate) fn set(concerns: impl Fn(i64) -> bool) {
    for (at, kind) in KINDS.iter().enumerate() {
        kind.store(concerns(at as i64).into(), Ordering::Relaxed);
    }
}
