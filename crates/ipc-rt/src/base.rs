//! Names, versions and outcomes that stubs and transports share.

use super::{DecodeError, EncodeError, Fault};
pub use crate::reason::Reason;
use rustix::process::Uid;
pub use sojourn_shm::Deadline;
pub use sojourn_shm::wait::Wait;

/// The sixteen bytes of a uuid in the order in which they are written.
pub type Uuid = [u8; 16];

/// The version of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Incompatible changes.
    pub major: u16,
    /// Compatible additions.
    pub minor: u16,
}

/// An interface as named at binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceId {
    /// Which interface.
    pub uuid: Uuid,
    /// Which version.
    pub version: Version,
}

impl InterfaceId {
    /// Returns true if a server of this interface can serve a client that was made for `wanted`.
    #[must_use]
    pub fn serves(&self, wanted: &Self) -> bool {
        self.uuid == wanted.uuid
            && self.version.major == wanted.version.major
            && self.version.minor >= wanted.version.minor
    }
}

/// The reason why a call gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The deadline passed.
    #[error("the deadline passed")]
    Timeout,
    /// The peer is gone or has disconnected us.
    #[error("disconnected: {0}")]
    Disconnected(Reason),
    /// The server answered with a fault.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The reply breaks the rules of the interface.
    #[error("bad reply: {0}")]
    Reply(#[from] DecodeError),
    /// The arguments cannot be sent.
    #[error("bad arguments: {0}")]
    Arguments(#[source] EncodeError),
    /// The message is larger than the peer accepts, or than the operation's `max_message`.
    #[error("the message is larger than the peer or the operation accepts")]
    TooLarge,
    /// All calls of this connection are outstanding.
    #[error("all calls of this connection are outstanding")]
    Busy,
    /// The kernel refused; its error number.
    #[error("system error {0}")]
    System(i32),
}

impl From<EncodeError> for CallError {
    #[inline]
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::TooLarge => Self::TooLarge,
            error => Self::Arguments(error),
        }
    }
}

impl CallError {
    /// As a number for `comm_status` and `fault_status`: a fault's own code, else the numbers of
    /// `sj_status` in `sojourn/ipc.h`.
    #[must_use]
    pub fn status(&self) -> u32 {
        match self {
            Self::Timeout => 1,
            Self::Disconnected(_) => 2,
            Self::Fault(fault) => fault.0,
            Self::Arguments(_) => 4,
            Self::TooLarge => 5,
            Self::System(_) => 6,
            Self::Reply(_) => 7,
            Self::Busy => 9,
        }
    }

    /// Returns true if it is the server's answer (`fault_status`) and not a failure to reach it
    /// (`comm_status`).
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }
}

/// Names a client of an endpoint for ever: a recycled index has another generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId {
    /// Place in the endpoint's table.
    pub index: u32,
    /// How often that place has been used.
    pub generation: u32,
}

/// The name by which a server knows a client at sight: a number that the server chose, 0 until it
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Badge(pub u64);

/// Who a client is, verified by the kernel when it connected; as the kernel's `struct ucred`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Process.
    pub pid: i32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Credentials {
    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> Uid {
        // A socket without a peer has -1.
        Uid::from_raw_unchecked(self.uid)
    }
}
