//! One owner: the way on which it gets its sessions' packets.
//!
//! Not here: how owners come and go, and which place in the group each has; see `owners`.

use crate::rule::Target;
use rustix::fd::OwnedFd;

/// One way to packets.
pub(crate) enum Owner {
    /// A member of the group; this is the server's copy of its socket.
    Direct { socket: OwnedFd, has_xsks: bool },
    /// A removed member that others stand behind; nobody but this server has its socket, or need
    /// have.
    Vacant { socket: OwnedFd },
    /// A removed member whose socket somebody still holds, by its inode.
    Lingering { inode: u64 },
    /// A port, by the server's side of it.
    Port { interface: u32 },
}

impl Owner {
    pub(crate) const fn is_usable(&self) -> bool {
        !matches!(self, Self::Vacant { .. } | Self::Lingering { .. })
    }

    pub(crate) const fn target(&self) -> Target {
        match self {
            Self::Direct { has_xsks: true, .. } => Target::Xsk,
            Self::Direct { .. } | Self::Vacant { .. } | Self::Lingering { .. } => Target::Direct,
            Self::Port { interface } => Target::Port { interface: *interface },
        }
    }
}
