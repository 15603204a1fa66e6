//! Small values of generated interfaces: descriptors, interface references, shared objects, the
//! caller of an operation.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::{Badge, ClientId, Credentials, Uuid};

/// A descriptor inside a structure, or none. Cheap to clone: clones share one descriptor.
#[derive(Clone, Debug, Default)]
pub struct Descriptor(Option<Arc<OwnedFd>>);

impl Descriptor {
    /// None.
    pub const NONE: Self = Self(None);

    /// Returns the descriptor to borrow, if there is one.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|fd| fd.as_fd())
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the descriptor itself; duplicated if other clones still hold it.
    ///
    /// # Errors
    /// Those of fcntl(2), when duplicating.
    pub fn into_owned(self) -> io::Result<Option<OwnedFd>> {
        match self.0.map(Arc::try_unwrap) {
            None => Ok(None),
            Some(Ok(fd)) => Ok(Some(fd)),
            Some(Err(shared)) => shared.try_clone().map(Some),
        }
    }
}

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Self {
        Self(Some(Arc::new(fd)))
    }
}

impl From<Option<OwnedFd>> for Descriptor {
    fn from(fd: Option<OwnedFd>) -> Self {
        Self(fd.map(Arc::new))
    }
}

/// Equal when both are none or both are the same number in this process.
impl PartialEq for Descriptor {
    fn eq(&self, other: &Self) -> bool {
        self.as_fd().map(|fd| fd.as_raw_fd()) == other.as_fd().map(|fd| fd.as_raw_fd())
    }
}

/// A reference to an interface of some server: which interface, and a socket to its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// The interface's uuid.
    pub uuid: Uuid,
    /// A connected socket to the endpoint that serves it.
    pub socket: Descriptor,
}

/// Conversion of a type on the wire to the local type that represents it (`represent_as`): whatever
/// has [`TryFrom`]. The other direction is `From<&Local>` for the type on the wire.
pub trait Represent<W>: Sized {
    /// Returns the local value; `None` refuses the message.
    fn represent(wire: W) -> Option<Self>;
}

impl<W, L: TryFrom<W>> Represent<W> for L {
    fn represent(wire: W) -> Option<Self> {
        Self::try_from(wire).ok()
    }
}

/// The caller: the first argument of every operation of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The client, named for ever: a recycled index has another generation.
    pub client: ClientId,
    /// The badge that the server chose for this client.
    pub badge: Badge,
    /// Verified by the kernel when the client connected.
    pub credentials: Credentials,
}
