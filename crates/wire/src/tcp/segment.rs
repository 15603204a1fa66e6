//! A TCP segment as a view over its bytes (RFC 9293 section 3.1). Not here: the header as a value
//! (`header`).

use super::flags::Flags;
use super::header::{HEADER_BYTES, Header};
use super::options::{OptionIter, Options};
use super::seq::SeqNum;
use crate::Malformed;
use crate::octets::{u16_at, u32_at};

/// A segment with a complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'b> {
    fixed: &'b [u8; HEADER_BYTES],
    options: &'b [u8],
    payload: &'b [u8],
}

impl<'b> Segment<'b> {
    /// Reads the segment in `bytes`, which are the whole payload of the IP packet. The checksum is
    /// not verified.
    ///
    /// # Errors
    /// [`Malformed::Short`], [`Malformed::Length`].
    pub fn new(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_first_chunk().ok_or(Malformed::Short)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        let options_len = header_len.checked_sub(HEADER_BYTES).ok_or(Malformed::Length)?;
        let (options, payload) = rest.split_at_checked(options_len).ok_or(Malformed::Short)?;
        Ok(Self { fixed, options, payload })
    }

    /// The sender's port.
    pub const fn source_port(&self) -> u16 {
        u16_at::<0, HEADER_BYTES>(self.fixed)
    }

    /// The receiver's port.
    pub const fn target_port(&self) -> u16 {
        u16_at::<2, HEADER_BYTES>(self.fixed)
    }

    /// The first sequence number.
    pub const fn seq(&self) -> SeqNum {
        SeqNum(u32_at::<4, HEADER_BYTES>(self.fixed))
    }

    /// Returns the acknowledgment number, significant with [`Flags::ACK`].
    pub const fn ack(&self) -> SeqNum {
        SeqNum(u32_at::<8, HEADER_BYTES>(self.fixed))
    }

    /// Returns the length of the header in bytes, including options.
    pub const fn header_len(&self) -> usize {
        HEADER_BYTES + self.options.len()
    }

    /// The control bits.
    pub const fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.fixed[13])
    }

    /// The window as sent, before scaling (RFC 7323 section 2).
    pub const fn window(&self) -> u16 {
        u16_at::<14, HEADER_BYTES>(self.fixed)
    }

    /// The checksum field.
    pub const fn checksum(&self) -> u16 {
        u16_at::<16, HEADER_BYTES>(self.fixed)
    }

    /// Returns the urgent pointer, significant with [`Flags::URG`].
    pub const fn urgent(&self) -> u16 {
        u16_at::<18, HEADER_BYTES>(self.fixed)
    }

    /// The options, one by one.
    pub const fn options(&self) -> OptionIter<'b> {
        OptionIter::new(self.options)
    }

    /// The payload.
    pub const fn payload(&self) -> &'b [u8] {
        self.payload
    }

    /// Returns the number of sequence numbers that the segment takes: payload, SYN and FIN.
    pub const fn sequence_len(&self) -> u32 {
        self.payload.len() as u32 + self.flags().sequence_len()
    }

    /// Returns the header as a value, with the known options.
    pub fn header(&self) -> Header {
        Header {
            source_port: self.source_port(),
            target_port: self.target_port(),
            seq: self.seq(),
            ack: self.ack(),
            flags: self.flags(),
            window: self.window(),
            urgent: self.urgent(),
            options: Options::parse(self.options),
        }
    }
}
