//! The table of system calls that the guest makes itself, because neither the loader nor the
//! library does more for them than the kernel.
//!
//! The way in looks a call up by the lowest byte of its number, with instructions that change no
//! flag (`enter`). Calls with numbers from 256 on go as far as `dispatch` first; the most frequent
//! calls have lower ones. Not here: which calls those are (`dispatch`, `early`).

use core::sync::atomic::{AtomicU8, Ordering};

/// The number of entries that each thread has.
const LEN: usize = 256;
/// Numbers from here on are no system calls.
pub(crate) const NUMBERS: usize = 512;

/// For each number: 0 if the guest makes the call itself.
pub(crate) type Kinds = [u8; LEN];

/// The whole table, whose beginning new threads get.
static KINDS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(1) }; NUMBERS];

/// Returns true if the guest makes the call itself.
pub(crate) fn is_guests(number: usize) -> bool {
    KINDS.get(number).is_some_and(|kind| kind.load(Ordering::Relaxed) == 0)
}

/// Returns the table for a thread that makes every call itself but these, whose numbers are lower
/// than the table is long.
pub(crate) fn all_but(served: &[i64]) -> Kinds {
    core::array::from_fn(|at| served.contains(&(at as i64)).into())
}

/// Returns the table for a thread.
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
