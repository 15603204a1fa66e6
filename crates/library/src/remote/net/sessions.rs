//! What calls of a session ask of the driver.
//!
//! Not here: the driver (`net`).

use crate::process::library::library;
use crate::session::Session;
use core::sync::atomic::{Ordering, fence};
use sojourn_stream::Stream;

impl Session {
    /// Whether this process carries it to another host.
    #[inline]
    pub(crate) fn is_delegated(&self) -> bool {
        self.is_delegated.load(Ordering::Relaxed)
    }

    /// After a write: has it sent.
    #[inline]
    pub(crate) fn have_sent(&self) {
        if !self.is_carried() {
            return;
        }
        // SYNC: after the write; pairs with the store in `Net::begin`, which looks at the ring
        // after it.
        fence(Ordering::SeqCst);
        if self.is_delegated()
            && let Some(net) = library().net()
        {
            self.has_asked.store(true, Ordering::Relaxed);
            net.serve_one(self.slot());
        }
    }

    /// After a read: has what there was no room for delivered.
    #[inline]
    pub(crate) fn have_delivered(&self, stream: &Stream) {
        if self.is_delegated()
            && stream.ledger().takes_want()
            && let Some(net) = library().net()
        {
            net.serve_one(self.slot());
        }
    }

    /// Takes packets that have arrived, if it is packets that its bytes come in. Whether there were
    /// any.
    #[inline]
    pub(crate) fn turns_net(&self) -> bool {
        self.is_delegated() && library().turn_net()
    }
}
