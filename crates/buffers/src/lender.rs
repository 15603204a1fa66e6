//! The table by which the preload library lends rings, looked for in this process.
//!
//! Not here: what the table has (`sojourn-lending`).

use sojourn_lending::{NAME, Table};
use std::sync::OnceLock;

/// Returns the table, if the preload library is in this process.
pub(crate) fn find() -> Option<&'static Table> {
    static FOUND: OnceLock<Option<&'static Table>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: a terminated string; the symbol, if it is there, is a table that is never
        // unloaded (`-z nodelete`).
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()).cast::<Table>().as_ref() }
    })
}
