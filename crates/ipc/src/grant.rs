//! Memory that a client shares with a server beforehand and then passes by reference.
//!
//! A [`Memory`] is a sealed segment. A memory that is registered with a connection gets a number;
//! messages then carry (number, offset, length) and no bytes are copied. The right to read lasts as
//! long as the request, unless the message grants it for longer ([`KEEP`]). A seal makes memory
//! read-only for others, so not even a hostile server can write it. No seal can take a mapping
//! back: after [`crate::Connection::unregister`] a hostile server may still read memory that it has
//! mapped, so memory lent to an untrusted server should be dropped, not reused.

use crate::shares::Share;
use sojourn_shm::{Access, Mapping, NewSegment, Segment, SegmentError, Span};

/// Flag of a grant: the receiver may write.
pub const WRITE: u32 = 1;
/// Flag of a grant: the receiver may keep it after the call returns.
pub const KEEP: u32 = 2;
/// The largest number of grants registered with one connection.
pub(crate) const REGISTERED_MAX: usize = 64;

/// Memory of this process that can be shared.
#[derive(Debug)]
pub struct Memory {
    pub(crate) segment: Segment,
    mapping: Mapping,
    access: Access,
}

impl Memory {
    /// Creates `len` zeroed bytes; `others` is the access of the receivers.
    ///
    /// # Errors
    /// [`SegmentError::System`].
    pub fn new(len: usize, others: Access) -> Result<Self, SegmentError> {
        let NewSegment { segment, mapping } = Segment::create("sojourn-grant", len, others)?;
        Ok(Self { segment, mapping, access: others })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns false always, since memory has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// Returns the access of the receivers.
    pub fn others(&self) -> Access {
        self.access
    }

    /// Returns the span of `len` bytes at `offset`, to copy to and from; `None` if it is not within
    /// the memory.
    pub fn span(&self, offset: usize, len: usize) -> Option<Span<'_>> {
        self.mapping.span(offset, len)
    }
}

/// The server's half: a registered grant. The mapping goes before its user's share.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) mapping: Mapping,
    pub(crate) _share: Share,
}

impl Granted {
    /// Returns the span to which a message refers, if the grant allows the access that the
    /// reference's flags ask for.
    pub(crate) fn resolve(&self, reference: crate::rt::Grant) -> Option<Span<'_>> {
        if reference.flags & !(WRITE | KEEP) != 0 {
            return None;
        }
        if reference.flags & WRITE != 0 && self.mapping.access() != Access::ReadWrite {
            return None;
        }
        let (offset, len) = (reference.offset.try_into().ok()?, reference.len.try_into().ok()?);
        self.mapping.span(offset, len)
    }
}
