//! `SO_ERROR` of sessions within the host whose peers were killed.
//!
//! Of the bytes that such a peer left unread in a ring the kernel knows nothing, so what it would
//! say once, to whatever asks first, a receive or `SO_ERROR`, is said here. Not here: how the end
//! is found by calls that receive and send (`receive`, `send`), and what is left of the stream then
//! (`flush`, `home`).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::Library;
use crate::session::Session;
use crate::session::directions::RxPhase;
use sojourn_session::{KindT, ReasonT};

impl Library {
    /// Before the kernel is asked for the error of `fd`: what became of the peer is known
    /// afterwards, as far as the kernel knows it.
    pub fn look_for_end(&self, fd: i32) {
        if let Some(session) = self.ended_session(fd) {
            session.leave(ReasonT::PeerDied, false);
        }
    }

    /// After the kernel has said that there is none: whether there is `ECONNRESET` to be told.
    /// Nobody else will tell it.
    pub fn take_reset(&self, fd: i32) -> bool {
        let Some(session) = self.session_of(fd) else { return false };
        let is_reset = {
            let mut rx = lock(&session.rx);
            let is_reset = core::mem::take(&mut rx.is_reset);
            if rx.phase == RxPhase::Reset {
                session.finish(&mut rx);
            }
            is_reset
        };
        session.settle();
        is_reset
    }

    /// The session of `fd`, if it is one within the host whose other end is closed.
    fn ended_session(&self, fd: i32) -> Option<&Session> {
        let session = self.session_of(fd)?;
        if !matches!(session.kind(), KindT::Tcp | KindT::Unix) || session.is_carried() {
            return None;
        }
        let wanted = kernel::hang_up(session.kind());
        let found = kernel::at(fd).and_then(|fd| kernel::poll(fd, wanted)).ok()?;
        found.intersects(wanted).then_some(session)
    }
}
