//! What a server thread receives, and from whom.

use super::{Request, Server};
use crate::ancillary;
use crate::reason::Reason;
use crate::rt::{ClientId, Credentials};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Nothing came before the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// The deadline passed.
    #[error("nothing came before the deadline")]
    TimedOut,
    /// The endpoint was closed and its last client is gone.
    #[error("the endpoint is closed")]
    Closed,
}

/// What a server thread receives.
#[derive(Debug)]
pub enum Event<'s> {
    /// A request that wants an answer.
    Call(Request<'s>),
    /// A request that wants none.
    Send(Request<'s>),
    /// A client set notification bits; bits set several times come once.
    Notify {
        /// Who.
        client: ClientId,
        /// Its badge.
        badge: u64,
        /// Which, never 0.
        bits: u64,
    },
    /// A client has connected to this thread.
    Connected {
        /// Who.
        client: ClientId,
        /// Who that is, by the kernel's word.
        credentials: Credentials,
    },
    /// A client is gone: the time to run its contexts down.
    Gone {
        /// Who.
        client: ClientId,
        /// Its badge.
        badge: u64,
        /// Why.
        reason: Reason,
    },
}

impl Server {
    /// The process that a client connected as, as a descriptor that is readable once it has ended.
    /// Its number may be another's by then, and whoever has the connection need not be it.
    ///
    /// # Errors
    /// Those of getsockopt(2): `ENOPROTOOPT` before Linux 6.5, others if it has ended and is
    /// forgotten.
    pub fn process(&self, client: ClientId) -> Result<OwnedFd, Errno> {
        let lane = self.lanes.iter().flatten().find(|lane| lane.link.id == client);
        ancillary::peer_process(lane.ok_or(Errno::NOTCONN)?.link.socket.as_fd())
    }
}
