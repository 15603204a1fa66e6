//! A TCP header as a value (RFC 9293 section 3.1), and its bytes. Not here: the checksum, which
//! needs addresses and payload (`frame`, or [`write_checksum`]).

use super::flags::Flags;
use super::options::{OPTIONS_BYTES_MAX, Options};
use super::seq::SeqNum;
use crate::NoRoom;
use crate::octets::put;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;
/// The largest length of a header in bytes.
pub const HEADER_BYTES_MAX: usize = HEADER_BYTES + OPTIONS_BYTES_MAX;
/// The offset of the checksum in the header.
pub const CHECKSUM_OFFSET: u16 = 16;

/// A header with the options that Sojourn knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub target_port: u16,
    /// The first sequence number.
    pub seq: SeqNum,
    /// The acknowledgment number, significant with [`Flags::ACK`].
    pub ack: SeqNum,
    /// The control bits.
    pub flags: Flags,
    /// The window as sent, before scaling.
    pub window: u16,
    /// The urgent pointer, significant with [`Flags::URG`].
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Returns the length of the header in bytes, including options.
    pub const fn len(&self) -> usize {
        HEADER_BYTES + self.options.len()
    }

    /// Returns false always, since there is a fixed part.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header with a zero checksum; returns its length in bytes. [`write_checksum`] adds
    /// the checksum.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short or the options are longer than 40 bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let (fixed, rest) = out.split_first_chunk_mut::<HEADER_BYTES>().ok_or(NoRoom)?;
        let options_len = self.options.emit(rest)?;
        let len = HEADER_BYTES + options_len;
        put::<0, 2, HEADER_BYTES>(fixed, self.source_port.to_be_bytes());
        put::<2, 2, HEADER_BYTES>(fixed, self.target_port.to_be_bytes());
        put::<4, 4, HEADER_BYTES>(fixed, self.seq.0.to_be_bytes());
        put::<8, 4, HEADER_BYTES>(fixed, self.ack.0.to_be_bytes());
        put::<12, 2, HEADER_BYTES>(fixed, [(len as u8 / 4) << 4, self.flags.bits()]);
        put::<14, 2, HEADER_BYTES>(fixed, self.window.to_be_bytes());
        put::<16, 2, HEADER_BYTES>(fixed, [0, 0]);
        put::<18, 2, HEADER_BYTES>(fixed, self.urgent.to_be_bytes());
        Ok(len)
    }
}

/// Writes `checksum` into an emitted header; returns false if `header` is too short.
pub fn write_checksum(header: &mut [u8], checksum: u16) -> bool {
    let place = header.get_mut(usize::from(CHECKSUM_OFFSET)..usize::from(CHECKSUM_OFFSET) + 2);
    place.map(|place| place.copy_from_slice(&checksum.to_be_bytes())).is_some()
}
