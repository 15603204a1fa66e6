//! Memory that a client shares with a server beforehand and then passes by reference.
//!
//! A [`Memory`] is a sealed segment. Registered with a connection it gets a number; messages then
//! carry (number, offset, length) and nothing is copied on the way. The right to look lasts as long
//! as the request, unless the message grants it for longer ([`KEEP`]). Memory made read-only for
//! others is so by seal: not even a hostile server can write it. What no seal can do is take a
//! mapping back: after [`crate::Connection::unregister`] a hostile server may still look at memory
//! it has mapped, so memory lent to one that is not trusted should be dropped then, not reused.

use sojourn_shm::{Access, Mapping, Segment, SegmentError, Span};

/// Flag of a grant: the receiver may write.
pub const WRITE: u32 = 1;
/// Flag of a grant: the receiver may keep it after the call returns.
pub const KEEP: u32 = 2;
/// Grants registered with one connection at most.
pub(crate) const REGISTERED_MAX: usize = 64;

/// Shareable memory of ours.
#[derive(Debug)]
pub struct Memory {
    pub(crate) segment: Segment,
    mapping: Mapping,
    access: Access,
}

impl Memory {
    /// `len` zeroed bytes; `others` says what those may do with it whom it is lent to.
    ///
    /// # Errors
    /// [`SegmentError::System`].
    pub fn new(len: usize, others: Access) -> Result<Self, SegmentError> {
        let (segment, mapping) = Segment::create("sojourn-grant", len, others)?;
        Ok(Self { segment, mapping, access: others })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: memory has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// What others may do with it.
    pub fn others(&self) -> Access {
        self.access
    }

    /// The span of `len` bytes at `offset`, to copy to and from; `None` if it is not within.
    pub fn span(&self, offset: usize, len: usize) -> Option<Span<'_>> {
        self.mapping.span(offset, len)
    }
}

/// The server's half: a registered grant.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) mapping: Mapping,
}

impl Granted {
    /// The span a message refers to, if the grant allows what its flags ask for.
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
