//! The numbers by which libraries, the session server and its carrier name sessions to one another.
//! In messages they are plain integers (`idl/session.idl`): each side converts them at its edge.
//!
//! Not here: names within one process, as slots of the library's, and the protocol server's tokens
//! (`protocol`).

use core::fmt;

/// A library's own number of a session, by which the server knows it; also the carrier's number of
/// the session's other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalNumber(pub u64);

/// The server's number of a stream; 0 names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamNumber(pub u64);

/// The server's number of an inbox; 0 names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboxNumber(pub u64);

/// A slot of an inbox: where a session's peer posts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboxSlot {
    /// The inbox.
    pub inbox: InboxNumber,
    /// The slot in it.
    pub slot: u32,
}

/// The right to give back a session that the carrier has delegated: a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelegationToken(pub u64);

impl fmt::Display for LocalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for StreamNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
