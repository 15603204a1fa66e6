//! The key of an end: its kernel object, and which of the object's two ends it is.
//!
//! Pure. Not here: finding the key (`identity`), keeping a pipe's key its own (`pins`), pairing by
//! keys (`registry`).

use sojourn_wire::SocketCookie;

/// A kernel object as the server saw it, and which end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A connected socket, by its cookie and its peer's. None stands for an end that is on another
    /// host; the carrier takes its place.
    Socket {
        /// This end's.
        own: SocketCookie,
        /// The other end's.
        peer: SocketCookie,
    },
    /// An end of a pipe.
    Pipe {
        /// The number of the pipe; both ends have the same, and no other pipe has: see
        /// [`crate::pins`]. Before the pipe is pinned this is its inode.
        object: u64,
        /// The end that writes.
        writes: bool,
    },
}

impl Key {
    /// Returns the key of the other end.
    #[must_use]
    pub fn mirror(self) -> Self {
        match self {
            Self::Socket { own, peer } => Self::Socket { own: peer, peer: own },
            Self::Pipe { object, writes } => Self::Pipe { object, writes: !writes },
        }
    }

    /// Returns true if it is an end of a pipe.
    #[must_use]
    pub fn is_pipe(self) -> bool {
        matches!(self, Self::Pipe { .. })
    }

    /// Returns true if one end is on another host.
    #[must_use]
    pub fn is_carried(self) -> bool {
        matches!(self, Self::Socket { own, peer } if [own, peer].contains(&SocketCookie::NONE))
    }
}
