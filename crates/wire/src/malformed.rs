//! The reasons why bytes cannot be read as a packet, and the error of a packet that does not fit a
//! buffer.
//!
//! Not here: the reaction (drop, count, leave to the kernel), which is the caller's.

use core::fmt;

/// The reason why bytes could not be read as the requested format.
///
/// The first five are damage. The others are well-formed packets of a kind that has no flow here:
/// see [`Malformed::is_foreign`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// Fewer bytes than the header, or than a length in it, says.
    Short,
    /// A length is impossible: smaller than its own header.
    Length,
    /// The version nibble contradicts the ether type, or is neither 4 nor 6.
    Version,
    /// The checksum of an IPv4 or ICMP header is wrong.
    Checksum,
    /// An option whose length is zero, one, or beyond the header's end.
    Options,
    /// Neither IPv4 nor IPv6 inside the link header.
    NotInternet,
    /// An IP packet whose payload is neither TCP nor UDP, or that is still on its way to another
    /// host (routing header).
    NotTransport,
    /// A fragment of an IP packet: only the first fragment has ports.
    Fragment,
}

impl Malformed {
    /// Returns true if the packet is valid but of a kind that stays in the kernel: other protocols
    /// and fragments.
    pub const fn is_foreign(self) -> bool {
        matches!(self, Self::NotInternet | Self::NotTransport | Self::Fragment)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "shorter than its headers say",
            Self::Length => "a length is smaller than its header",
            Self::Version => "wrong IP version",
            Self::Checksum => "wrong checksum",
            Self::Options => "an option's length is impossible",
            Self::NotInternet => "neither IPv4 nor IPv6",
            Self::NotTransport => "neither TCP nor UDP",
            Self::Fragment => "a fragment",
        })
    }
}

impl core::error::Error for Malformed {}

/// A header does not fit: into the bytes given, or its lengths into their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room for the header")
    }
}

impl core::error::Error for NoRoom {}
