//! The table of system calls that the guest makes itself, because neither the loader nor the
//! library does more for them than the kernel.
//!
//! The way in looks a call up by the lowest byte of its number, with instructions that change no
//! flag (`enter`). Calls with numbers from 256 on go as far as `dispatch` first; the most frequent
//! calls have lower ones. Not here: which calls those are (`dispatch`, `early`, `kernels`).

use crate::kernels;
use core::sync::atomic::{AtomicU8, Ordering};

/// The number of entries that each thread has.
pub(crate) const LEN: usize = 256;
/// Numbers from here on are no system calls.
pub(crate) const NUMBERS: usize = 512;

/// The guest makes the call itself.
pub(crate) const GUESTS: u8 = 0;
/// The call goes to the host.
pub(crate) const HOSTS: u8 = 1;
/// A data call, which goes to the host unless the kernel serves its descriptor for good.
pub(crate) const DATA: u8 = 2;

/// The kind of each number's call.
pub(crate) type Kinds = [u8; LEN];

/// The whole table, whose beginning new threads get. At first it is that of a guest without a host.
static KINDS: [AtomicU8; NUMBERS] = {
    let mut all = [const { AtomicU8::new(HOSTS) }; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        if kernels::passes(number as i64) {
            all[number] = AtomicU8::new(GUESTS);
        }
        number += 1;
    }
    all
};

/// Returns true if the guest makes the call itself.
pub(crate) fn is_guests(number: usize) -> bool {
    KINDS.get(number).is_some_and(|kind| kind.load(Ordering::Relaxed) == GUESTS)
}

/// Returns the table for a thread that makes every call itself but these, whose numbers are lower
/// than the table is long.
pub(crate) fn all_but(served: &[i64]) -> Kinds {
    core::array::from_fn(|at| if served.contains(&(at as i64)) { HOSTS } else { GUESTS })
}

/// Returns the table for a thread.
pub(crate) fn all() -> Kinds {
    core::array::from_fn(|at| KINDS[at].load(Ordering::Relaxed))
}

/// Sets the kind of each number's call. Only the threads made afterwards have the new table.
pub(crate) fn set(kind_of: impl Fn(i64) -> u8) {
    for (at, kind) in KINDS.iter().enumerate() {
        kind.store(kind_of(at as i64), Ordering::Relaxed);
    }
}
