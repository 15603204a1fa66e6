//! The state of a session's signals for I/O (`O_ASYNC`, fcntl(2)).
//!
//! Not here: when a signal is due (`io::signals`).

use core::sync::atomic::{AtomicBool, Ordering};

/// Signals for I/O of a session.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// `O_ASYNC` is set. Written under the lock of the receiving direction.
    pub(crate) is_on: AtomicBool,
    /// A send has found no room, and no signal has said since that there is some.
    pub(crate) awaits_room: AtomicBool,
}

impl Signals {
    /// Begins the use of the slot by another session.
    pub(crate) fn reset(&self) {
        self.is_on.store(false, Ordering::SeqCst);
        self.awaits_room.store(false, Ordering::SeqCst);
    }
}
