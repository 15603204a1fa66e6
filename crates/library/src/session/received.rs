//! What one look of a receiving call gave.
//!
//! Not here: looking (`receive`, `residue`, `carried`).

use rustix::io::Errno;
use sojourn_session::ReasonT;

/// What one look gave.
pub(crate) enum Received {
    Done(Result<usize, Errno>),
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
