//! `SO_ERROR` of sessions within the host whose peers were killed.
//!
//! The kernel knows nothing of bytes that a killed peer left unread in a ring. So the library
//! itself reports the reset, once, to the first call that asks: a receive or `SO_ERROR`. Not here:
//! how receives and sends find the end (`io::receive`, `io::send`), and the rest of the stream
//! (`flush`, `home`).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::Library;
use crate::session::Session;
use crate::session::directions::RxPhase;
use sojourn_session::{KindT, ReasonT};

impl Library {
    /// Prepares a question for the error of `fd`: if the kernel knows that the peer has died, the
    /// session goes home now, which decides about a reset.
    pub fn look_for_end(&self, fd: i32) {
        if let Some(session) = self.ended_session(fd) {
            session.leave(ReasonT::PeerDied, false);
        }
    }

    /// Takes the reset that is to be reported, after the kernel has said that there is no error.
    /// Returns true if the caller has to report `ECONNRESET`: nobody else will.
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

    /// Returns the session of `fd`, if it is one within the host whose other end is closed.
    fn ended_session(&self, fd: i32) -> Option<&Session> {
        let session = self.session_of(fd)?;
        if session.kind() == KindT::Pipe || session.local().is_none() {
            return None;
        }
        let wanted = kernel::hang_up(session.kind());
        let found = kernel::at(fd).and_then(|fd| kernel::poll(fd, wanted)).ok()?;
        found.intersects(wanted).then_some(session)
    }
}
