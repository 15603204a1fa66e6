//! The table by which the preload library lends rings, looked for in this process.
//!
//! Not here: what the table has (`sojourn-lending`).

use once_cell::race::OnceBox;
use sojourn_lending::{Lent, NAME, Table};
use sojourn_shm::Deadline;

/// Bytes of the private buffer where the lender lends nothing, unless one call wants more.
pub(crate) const STORE_BYTES: usize = 64 << 10;

/// The place of what is with the program: received bytes, or space to fill.
#[derive(Debug)]
pub(crate) enum OnLoan {
    Nothing,
    /// As many bytes of the private buffer.
    Store(usize),
    /// Pieces of the ring.
    Ring(Lent),
}

/// Returns the table, if the preload library is in this process.
pub(crate) fn find() -> Option<&'static Table> {
    static FOUND: OnceBox<Option<&'static Table>> = OnceBox::new();
    *FOUND.get_or_init(|| {
        // SAFETY: a terminated string; the symbol, if it is there, is a table that is never
        // unloaded (`-z nodelete`).
        let table = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()).cast::<Table>() };
        // SAFETY: see above.
        Box::new(unsafe { table.as_ref() })
    })
}

/// Returns the deadline as the table's functions want it.
pub(crate) fn until_ns(until: Deadline) -> u64 {
    let ns = until.since_zero().map(|time| u64::try_from(time.as_nanos()));
    ns.and_then(Result::ok).unwrap_or(u64::MAX)
}
