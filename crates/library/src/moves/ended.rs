//! `SO_ERROR` of sessions within the host whose peers were killed.
//!
//! The kernel knows nothing of bytes that a killed peer left unread in a ring. So the library
//! itself reports the reset, once, to the first call that asks: a receive, `SO_ERROR`, or a send by
//! TCP (`sk_stream_error`; one by a Unix socket fails with `EPIPE` in any case). Not here: how
//! receives and sends find the end (`io::receive`, `io::send`), and the rest of the stream
//! (`flush`, `home`).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::{Library, OwnSession};
use crate::session::Session;
use crate::session::directions::{RxPhase, TxPhase};
use crate::session::identity::Generation;
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
        let is_reset = session.take_reset();
        session.settle();
        is_reset
    }

    /// Returns the session of `fd`, if it is one within the host whose other end is closed.
    fn ended_session(&self, fd: i32) -> Option<OwnSession<'_>> {
        let session = self.session_of(fd)?;
        if session.kind() == KindT::Pipe || session.local().is_none() {
            return None;
        }
        let wanted = kernel::hang_up(session.kind());
        let found = kernel::at(fd).and_then(|fd| kernel::poll(fd, wanted)).ok()?;
        found.intersects(wanted).then_some(session)
    }
}

impl Session {
    /// Returns true if the library has a reset to report to a send, which the kernel would serve
    /// otherwise.
    #[cold]
    pub(crate) fn send_has_reset(&self) -> bool {
        self.kind() == KindT::Tcp
            && lock(&self.tx).phase == TxPhase::Home
            && lock(&self.rx).is_reset
    }

    /// Returns true if the kernel would have a send fail with `ECONNRESET`, because no call has
    /// reported the reset yet. This one does.
    pub(crate) fn send_is_reset(&self, generation: Generation) -> bool {
        self.kind() == KindT::Tcp && self.is_still(generation) && self.take_reset()
    }

    fn take_reset(&self) -> bool {
        let mut rx = lock(&self.rx);
        let is_reset = core::mem::take(&mut rx.is_reset);
        if rx.phase == RxPhase::Reset {
            self.finish(&mut rx);
        }
        is_reset
    }
}
