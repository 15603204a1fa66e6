//! The name that the kernel gives a socket.

/// A socket's cookie (`SO_COOKIE`, socket(7)), which the kernel never gives out again while it
/// runs. 0 names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketCookie(pub u64);

impl SocketCookie {
    /// No socket.
    pub const NONE: Self = Self(0);
}
