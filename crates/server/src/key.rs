//! What an end is known by: which kernel object, and which of its two ends.
//!
//! Pure. Not here: who finds that out (`identity`), what keeps a pipe's key its own (`pins`), who
//! is paired by it (`registry`).

/// A kernel object as the server saw it, and which end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A connected socket: its cookie and its peer's. 0 for an end that is on another host: its
    /// place is taken by the carrier.
    Socket {
        /// This end's.
        own: u64,
        /// The other end's.
        peer: u64,
    },
    /// An end of a pipe.
    Pipe {
        /// Both ends have the same, and no other pipe has: see [`crate::pins`]. What looks at an
        /// end only knows its inode.
        object: u64,
        /// The end that writes.
        writes: bool,
    },
}

impl Key {
    /// The key of the other end.
    #[must_use]
    pub fn mirror(self) -> Self {
        match self {
            Self::Socket { own, peer } => Self::Socket { own: peer, peer: own },
            Self::Pipe { object, writes } => Self::Pipe { object, writes: !writes },
        }
    }

    /// Whether one end is on another host.
    #[must_use]
    pub fn is_carried(self) -> bool {
        matches!(self, Self::Socket { own, peer } if own == 0 || peer == 0)
    }
}
