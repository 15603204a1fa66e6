//! The result of one look of a receiving call at its session.
//!
//! Not here: the looks themselves (`io::receive`, `moves::residue`, `remote::carried`).

use rustix::io::Errno;
use sojourn_session::ReasonT;

/// The terms of one look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveTerms {
    /// The bytes stay (`MSG_PEEK`).
    pub(crate) peek: bool,
    /// Owed bytes are taken even if not all that the call wants have come: the call has waited for
    /// the rest already.
    pub(crate) may_cut: bool,
}

/// The result of one look.
pub(crate) enum Received {
    /// The result that the call returns.
    Done(Result<usize, Errno>),
    /// So many bytes, the last ones that the kernel had, before a switch to the ring or of a flush
    /// that was cut short. The ring has more.
    Part(usize),
    /// There is nothing yet.
    Empty,
    /// There is nothing yet, but the peer is putting owed bytes into the kernel, from before a
    /// return. A program cannot tell that from bytes on their way inside the kernel.
    Owed,
    /// The peer, or a violation, ended the stream: the caller goes home, then looks again.
    Leave(ReasonT),
    /// The session is home: the kernel serves this call.
    Home,
}
