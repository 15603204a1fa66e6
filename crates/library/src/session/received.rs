//! What one look of a receiving call gave.
//!
//! Not here: looking (`receive`, `residue`, `carried`).

use rustix::io::Errno;
use sojourn_session::ReasonT;

/// How one look goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The bytes stay.
    pub(crate) peek: bool,
    /// Bytes that are owed are taken although not all that are wanted have come: the call has
    /// waited for them.
    pub(crate) may_cut: bool,
}

/// What one look gave.
pub(crate) enum Received {
    Done(Result<usize, Errno>),
    /// So many bytes, the last that the kernel had of a flush that was cut short. More is in the
    /// ring.
    Part(usize),
    /// Nothing yet.
    Empty,
    /// Nothing yet, but the peer is putting into the kernel what it owes us from before a return.
    /// The kernel, too, has times at which bytes are on their way inside it.
    Owed,
    /// The peer, or a violation, ended the stream: go home, then look again.
    Leave(ReasonT),
    /// Home: the kernel serves this call.
    Home,
}
