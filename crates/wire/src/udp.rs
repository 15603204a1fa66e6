//! UDP's datagrams (RFC 768; over IPv6 RFC 8200 section 8.1).
//!
//! Not here: segmentation of long payloads, which an interface does (`vnet`).

use crate::octets::{put, u16_at};
use crate::{Malformed, NoRoom};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// The offset of the checksum in the header.
pub const CHECKSUM_OFFSET: u16 = 6;

/// A datagram with a complete header and a consistent length; bytes after it are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'b> {
    fixed: &'b [u8; HEADER_BYTES],
    payload: &'b [u8],
}

impl<'b> Datagram<'b> {
    /// Reads the datagram at the beginning of `bytes`. The checksum is not verified.
    ///
    /// # Errors
    /// [`Malformed::Short`], [`Malformed::Length`].
    pub fn new(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
        let len = usize::from(u16_at::<4, HEADER_BYTES>(fixed));
        let payload_len = len.checked_sub(HEADER_BYTES).ok_or(Malformed::Length)?;
        Ok(Self { fixed, payload: rest.get(..payload_len).ok_or(Malformed::Short)? })
    }

    /// Returns the sender's port; 0 if the sender expects no answer (RFC 768).
    pub const fn source_port(&self) -> u16 {
        u16_at::<0, HEADER_BYTES>(self.fixed)
    }

    /// The receiver's port.
    pub const fn target_port(&self) -> u16 {
        u16_at::<2, HEADER_BYTES>(self.fixed)
    }

    /// Returns the checksum field; 0 means that the sender computed none.
    pub const fn checksum(&self) -> u16 {
        u16_at::<6, HEADER_BYTES>(self.fixed)
    }

    /// The payload.
    pub const fn payload(&self) -> &'b [u8] {
        self.payload
    }

    /// The header as a value.
    pub const fn header(&self) -> Header {
        Header { source_port: self.source_port(), target_port: self.target_port() }
    }
}

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub target_port: u16,
}

impl Header {
    /// Writes the header of a datagram with `payload_len` bytes, with a zero checksum; returns its
    /// length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short, or the datagram longer than 65,535 bytes.
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = out.first_chunk_mut::<HEADER_BYTES>().ok_or(NoRoom)?;
        let len = u16::try_from(HEADER_BYTES + payload_len).map_err(|_| NoRoom)?;
        put::<0, 2, HEADER_BYTES>(out, self.source_port.to_be_bytes());
        put::<2, 2, HEADER_BYTES>(out, self.target_port.to_be_bytes());
        put::<4, 2, HEADER_BYTES>(out, len.to_be_bytes());
        put::<6, 2, HEADER_BYTES>(out, [0, 0]);
        Ok(HEADER_BYTES)
    }
}

/// Returns a computed checksum in the form in which it is sent: a zero becomes 0xffff, because zero
/// means no checksum (RFC 768).
pub const fn as_sent(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Writes `checksum` into an emitted header; returns false if `header` is too short.
pub fn write_checksum(header: &mut [u8], checksum: u16) -> bool {
    let place = header.get_mut(usize::from(CHECKSUM_OFFSET)..usize::from(CHECKSUM_OFFSET) + 2);
    place.map(|place| place.copy_from_slice(&checksum.to_be_bytes())).is_some()
}
