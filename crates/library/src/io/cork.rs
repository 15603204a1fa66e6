//! `TCP_CORK` (tcp(7)) of sessions on this host: what a program writes between two settings of it
//! wakes the peer once.
//!
//! The kernel holds a segment back for 200 ms at most. So the protocol thread looks at the corks as
//! long as one is in, and a second look that finds the same wake-up held back makes up for it. Not
//! here: what is held back (`sojourn_stream`), sessions with other hosts, whose engine obeys the
//! option.

use crate::fds::slot::Slot;
use crate::process::engine::Job;
use crate::process::library::Library;
use core::sync::atomic::Ordering;
use core::time::Duration;
use sojourn_session::KindT;
use sojourn_stream::Stream;
use std::sync::Arc;

/// The time between two looks; the second one wakes the peer.
pub(crate) const LOOKS: Duration = Duration::from_millis(100);

/// An option that decides when bytes leave a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corking {
    /// `TCP_CORK` is set.
    In,
    /// `TCP_CORK` is cleared.
    Out,
    /// `TCP_NODELAY` is set, which sends what a cork holds back, and leaves the cork in.
    Push,
}

impl Library {
    /// Reports that the program sets such an option of `fd`.
    pub fn corked(&self, fd: i32, corking: Corking) {
        let Some(stream) = self.stream_to_cork(fd) else { return };
        match corking {
            Corking::Out => stream.set_corked(false),
            Corking::Push => stream.push(),
            Corking::In => {
                stream.set_corked(true);
                // SYNC: after the cork; pairs with the end of the looks
                // (`control::protocol::corks`).
                if self.engine().is_none_or(|one| !one.looks_at_corks.load(Ordering::SeqCst)) {
                    self.push(Job::Corked);
                }
            }
        }
    }

    fn stream_to_cork(&self, fd: i32) -> Option<Arc<Stream>> {
        let session = self.session_of(fd)?;
        session.local()?;
        session.stream().filter(|_| session.kind() == KindT::Tcp)
    }

    /// Looks at the corks of the sessions in these slots; returns true if one is in.
    pub(crate) fn look_at_corks(&self, slots: impl Iterator<Item = Slot>) -> bool {
        let Some(engine) = self.engine() else { return false };
        let streams = slots.filter_map(|slot| engine.pool.session(slot)?.stream());
        // Each has to be looked at.
        streams.fold(false, |is_in, stream| stream.look_at_cork() | is_in)
    }
}
