//! The driver, as the calls of a session use it.
//!
//! Not here: the driver (`net`).

use crate::process::library::OwnSession;
use crate::session::Session;
use core::sync::atomic::{Ordering, fence};
use sojourn_stream::Stream;

impl OwnSession<'_> {
    /// Has written bytes sent to another host; called after a write.
    #[inline]
    pub(crate) fn have_sent(self) {
        // SYNC: after the write; pairs with the store in `Net::begin`, which looks at the ring
        // after it.
        fence(Ordering::SeqCst);
        if self.is_delegated()
            && let Some(net) = self.library.net()
        {
            self.has_asked.store(true, Ordering::Relaxed);
            net.serve_one(self.library, self.slot());
        }
    }

    /// Has bytes delivered for which there was no room before; called after a read.
    #[inline]
    pub(crate) fn have_delivered(self, stream: &Stream) {
        if self.is_delegated()
            && stream.ledger().takes_want()
            && let Some(net) = self.library.net()
        {
            net.serve_one(self.library, self.slot());
        }
    }

    /// Takes in packets that have arrived, if this session's bytes come in packets. Returns true if
    /// there were any.
    #[inline]
    pub(crate) fn turns_net(self) -> bool {
        self.is_delegated() && self.library.turn_net()
    }
}

impl Session {
    /// Returns true if this process runs the session's engine.
    #[inline]
    pub(crate) fn is_delegated(&self) -> bool {
        self.is_delegated.load(Ordering::Relaxed)
    }
}
