//! IPv6 (RFC 8200): the header as view and value, and the walk over extension headers to the
//! payload.
//!
//! Not here: jumbograms (RFC 2675), the meaning of options, reassembly and routing. Read `frame`
//! for a whole packet.

use crate::ip::{TrafficClass, number};
use crate::octets::{array_at, put, u16_at, u32_at};
use crate::{Malformed, NoRoom};
use core::net::Ipv6Addr;

/// Bytes of the header without extensions.
pub const HEADER_BYTES: usize = 40;

/// The largest number of extension headers; a packet with more is refused, since no honest host
/// sends one.
const EXTENSIONS_MAX: usize = 8;

/// A packet with a complete header and a consistent length; bytes after the packet (a short frame's
/// padding) are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'b> {
    fixed: &'b [u8; HEADER_BYTES],
    rest: &'b [u8],
}

/// The result of the walk over the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'b> {
    /// The payload's protocol.
    pub protocol: u8,
    /// Bytes of the extension headers before it.
    pub extensions_len: usize,
    /// True if the packet is a fragment, so that the payload is a part.
    pub is_fragment: bool,
    /// True if the packet is a fragment other than the first, so that the payload does not begin
    /// with a header.
    pub(crate) is_later_fragment: bool,
    /// The payload.
    pub payload: &'b [u8],
}

impl<'b> Packet<'b> {
    /// Reads the packet at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Short`], [`Malformed::Version`].
    pub fn new(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let packet = Self::new_cut(bytes)?;
        let len = usize::from(packet.payload_len());
        Ok(Self { rest: packet.rest.get(..len).ok_or(Malformed::Short)?, ..packet })
    }

    /// Reads the beginning of a packet that continues for exactly `missing` bytes behind `bytes`.
    /// The payload is the part in `bytes`.
    ///
    /// # Errors
    /// As for [`Packet::new`]; [`Malformed::Length`] if the packet ends elsewhere.
    pub(crate) fn starting(bytes: &'b [u8], missing: usize) -> Result<Self, Malformed> {
        if missing == 0 {
            return Self::new(bytes);
        }
        let packet = Self::new_cut(bytes)?;
        let ends_there = usize::from(packet.payload_len()) == packet.rest.len() + missing;
        if ends_there { Ok(packet) } else { Err(Malformed::Length) }
    }

    /// Reads a packet that may be cut, as quoted by ICMP.
    pub(crate) fn new_cut(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
        if fixed[0] >> 4 != 6 {
            return Err(Malformed::Version);
        }
        Ok(Self { fixed, rest })
    }

    /// Differentiated services and congestion bits.
    pub const fn traffic_class(&self) -> TrafficClass {
        TrafficClass((u16_at::<0, HEADER_BYTES>(self.fixed) >> 4) as u8)
    }

    /// Returns the flow label (20 bits, RFC 6437).
    pub const fn flow_label(&self) -> u32 {
        u32_at::<0, HEADER_BYTES>(self.fixed) & 0x000f_ffff
    }

    /// Returns the number of bytes after the header, including extension headers, from the header.
    pub const fn payload_len(&self) -> u16 {
        u16_at::<4, HEADER_BYTES>(self.fixed)
    }

    /// Returns the type of the next header: an extension header or the payload's protocol.
    pub const fn next_header(&self) -> u8 {
        self.fixed[6]
    }

    /// Hops left.
    pub const fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// The sender.
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from(array_at::<8, 16, HEADER_BYTES>(self.fixed))
    }

    /// The receiver.
    pub fn target(&self) -> Ipv6Addr {
        Ipv6Addr::from(array_at::<24, 16, HEADER_BYTES>(self.fixed))
    }

    /// Returns the bytes after the header: extension headers and payload.
    pub const fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// Walks over the extension headers (RFC 8200 section 4). An atomic fragment (RFC 6946) is a
    /// whole packet.
    ///
    /// # Errors
    /// [`Malformed::Short`]; [`Malformed::NotTransport`] for a routing header with hops left and
    /// for too many headers.
    pub fn upper(&self) -> Result<Upper<'b>, Malformed> {
        let mut upper = Upper {
            protocol: self.next_header(),
            extensions_len: 0,
            is_fragment: false,
            is_later_fragment: false,
            payload: self.rest,
        };
        for _ in 0..EXTENSIONS_MAX {
            let len = match upper.protocol {
                number::HOP_BY_HOP | number::DESTINATION | number::ROUTING => upper.option_len()?,
                number::FRAGMENT => upper.fragment_len()?,
                _ => return Ok(upper),
            };
            upper.step(len)?;
            if upper.is_later_fragment {
                return Ok(upper);
            }
        }
        Err(Malformed::NotTransport)
    }

    /// Returns the header as a value without extension headers.
    pub fn header(&self) -> Header {
        Header {
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            source: self.source(),
            target: self.target(),
        }
    }
}

impl Upper<'_> {
    /// Returns the length in bytes of the next options or routing header.
    fn option_len(&self) -> Result<usize, Malformed> {
        let head = self.payload.first_chunk::<8>().ok_or(Malformed::Short)?;
        if self.protocol == number::ROUTING && head[3] != 0 {
            return Err(Malformed::NotTransport);
        }
        Ok(8 + 8 * usize::from(head[1]))
    }

    /// Returns the length in bytes of the next fragment header, and notes its fields.
    fn fragment_len(&mut self) -> Result<usize, Malformed> {
        let head = self.payload.first_chunk::<8>().ok_or(Malformed::Short)?;
        let fragment = u16_at::<2, 8>(head);
        self.is_fragment |= fragment & 0xfff9 != 0;
        self.is_later_fragment |= fragment & 0xfff8 != 0;
        Ok(8)
    }

    fn step(&mut self, len: usize) -> Result<(), Malformed> {
        let (header, payload) = self.payload.split_at_checked(len).ok_or(Malformed::Short)?;
        self.protocol = *header.first().ok_or(Malformed::Short)?;
        self.extensions_len += len;
        self.payload = payload;
        Ok(())
    }
}

/// A header without extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Differentiated services and congestion bits.
    pub traffic_class: TrafficClass,
    /// The flow label (20 bits).
    pub flow_label: u32,
    /// The payload's protocol.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub target: Ipv6Addr,
}

impl Header {
    /// Writes the header of a packet with `payload_len` bytes of payload; returns its length in
    /// bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short, or the payload longer than 65,535 bytes.
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = out.first_chunk_mut::<HEADER_BYTES>().ok_or(NoRoom)?;
        let len = u16::try_from(payload_len).map_err(|_| NoRoom)?;
        let class = u32::from(self.traffic_class.0) << 20;
        let first = 6 << 28 | class | self.flow_label & 0x000f_ffff;
        put::<0, 4, HEADER_BYTES>(out, first.to_be_bytes());
        put::<4, 2, HEADER_BYTES>(out, len.to_be_bytes());
        put::<6, 2, HEADER_BYTES>(out, [self.next_header, self.hop_limit]);
        put::<8, 16, HEADER_BYTES>(out, self.source.octets());
        put::<24, 16, HEADER_BYTES>(out, self.target.octets());
        Ok(HEADER_BYTES)
    }
}
