//! The numbers by which libraries, the session server and its carrier name sessions to one another,
//! and those of the kernel's that they name sockets and pipes by. In messages they are plain
//! integers (`idl/session.idl`): each side converts them at its edge. Users are `rustix`'s `Uid`.
//!
//! Not here: names within one process, as slots of the library's, and the protocol server's tokens
//! (`protocol`).

use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;
use rustix::process::Pid;

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

/// The inode of a socket or pipe; 0 names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

/// The number of a process in this process's PID name space; 0 for a process that is not seen from
/// there, which `rustix`'s `Pid` cannot say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// No process, or one that is not seen.
    pub const NONE: Self = Self(0);

    /// Returns the number of this process.
    #[must_use]
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// Returns the number for system calls; `None` for a process that is not seen.
    #[must_use]
    pub fn seen(self) -> Option<Pid> {
        i32::try_from(self.0).ok().and_then(Pid::from_raw)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProcessId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// The right to give back a session that the carrier has delegated: a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelegationToken(pub u64);

impl fmt::Display for LocalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for StreamNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
