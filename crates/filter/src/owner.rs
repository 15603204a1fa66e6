//! One owner: the way in which it gets its sessions' packets.
//!
//! Not here: adding and removing owners, and their places in the group (`owners`).

use crate::rule::Target;
use rustix::fd::OwnedFd;

/// The inode of a packet socket; 0 of one that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SocketInode(pub(crate) u64);

/// One way to packets.
pub(crate) enum Owner {
    /// A member of the group; this is the server's copy of its socket.
    Direct { socket: OwnedFd, has_xsks: bool },
    /// A removed member with later members behind it. Only this server needs to have its socket.
    Vacant { socket: OwnedFd },
    /// A removed member whose socket another process still holds, by its inode.
    Lingering { inode: SocketInode },
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
