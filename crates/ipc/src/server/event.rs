//! What a server thread receives.

use super::Request;
use crate::reason::Reason;
use crate::rt::{ClientId, Credentials};

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
