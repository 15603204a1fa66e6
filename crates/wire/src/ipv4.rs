//! IPv4 (RFC 791): the header as view and value. Received options are skipped, and none are sent.
//!
//! Not here: reassembly and routing, which stay in the kernel. Read `frame` for a whole packet.

use crate::ip::TrafficClass;
use crate::octets::{array_at, put, u16_at};
use crate::{Malformed, NoRoom, checksum};
use core::net::Ipv4Addr;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// A packet with a complete header and consistent lengths; bytes after the packet (a short frame's
/// padding) are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'b> {
    fixed: &'b [u8; HEADER_BYTES],
    options: &'b [u8],
    payload: &'b [u8],
}

impl<'b> Packet<'b> {
    /// Reads the packet at the beginning of `bytes`. The header's checksum is not verified.
    ///
    /// # Errors
    /// [`Malformed::Short`], [`Malformed::Version`], [`Malformed::Length`].
    pub fn new(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let packet = Self::new_cut(bytes)?;
        let header_len = packet.header_len();
        let total = packet.total_len();
        let payload_len = usize::from(total).checked_sub(header_len).ok_or(Malformed::Length)?;
        let payload = packet.payload.get(..payload_len).ok_or(Malformed::Short)?;
        Ok(Self { payload, ..packet })
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
        let ends_there = usize::from(packet.total_len()) == bytes.len() + missing;
        if ends_there { Ok(packet) } else { Err(Malformed::Length) }
    }

    /// Reads a packet that may be cut, as quoted by ICMP. The payload is the part in `bytes`.
    pub(crate) fn new_cut(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
        if fixed[0] >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        let options_len = header_len.checked_sub(HEADER_BYTES).ok_or(Malformed::Length)?;
        let (options, payload) = rest.split_at_checked(options_len).ok_or(Malformed::Short)?;
        Ok(Self { fixed, options, payload })
    }

    /// Returns the length of the header in bytes, including options.
    pub const fn header_len(&self) -> usize {
        HEADER_BYTES + self.options.len()
    }

    /// Returns the length of the packet in bytes, from the header.
    pub const fn total_len(&self) -> u16 {
        u16_at::<2, HEADER_BYTES>(self.fixed)
    }

    /// Differentiated services and congestion bits.
    pub const fn traffic_class(&self) -> TrafficClass {
        TrafficClass(self.fixed[1])
    }

    /// Returns the identification, which has a meaning only in fragments (RFC 6864).
    pub const fn identification(&self) -> u16 {
        u16_at::<4, HEADER_BYTES>(self.fixed)
    }

    /// True if routers must not fragment the packet.
    pub const fn dont_fragment(&self) -> bool {
        u16_at::<6, HEADER_BYTES>(self.fixed) & DONT_FRAGMENT != 0
    }

    /// Returns true if the packet is a fragment.
    pub const fn is_fragment(&self) -> bool {
        u16_at::<6, HEADER_BYTES>(self.fixed) & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Returns true if the packet is a fragment other than the first.
    pub(crate) const fn is_later_fragment(&self) -> bool {
        u16_at::<6, HEADER_BYTES>(self.fixed) & OFFSET != 0
    }

    /// Time to live: hops left.
    pub const fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// The payload's protocol.
    pub const fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// Returns true if the header is undamaged.
    pub fn checksum_is_right(&self) -> bool {
        let mut sum = checksum::sum_array(self.fixed);
        if !self.options.is_empty() {
            sum.add(self.options);
        }
        sum.is_valid()
    }

    /// The sender.
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from(array_at::<12, 4, HEADER_BYTES>(self.fixed))
    }

    /// The receiver.
    pub fn target(&self) -> Ipv4Addr {
        Ipv4Addr::from(array_at::<16, 4, HEADER_BYTES>(self.fixed))
    }

    /// The payload.
    pub const fn payload(&self) -> &'b [u8] {
        self.payload
    }

    /// Returns the header as a value without options.
    pub fn header(&self) -> Header {
        Header {
            traffic_class: self.traffic_class(),
            identification: self.identification(),
            dont_fragment: self.dont_fragment(),
            ttl: self.ttl(),
            protocol: self.protocol(),
            source: self.source(),
            target: self.target(),
        }
    }
}

/// A header without options, of a packet that is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Differentiated services and congestion bits.
    pub traffic_class: TrafficClass,
    /// The identification, which may have any value while the packet must not be fragmented (RFC
    /// 6864).
    pub identification: u16,
    /// True if routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Time to live: hops left.
    pub ttl: u8,
    /// The payload's protocol.
    pub protocol: u8,
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub target: Ipv4Addr,
}

impl Header {
    /// Writes the header of a packet with `payload_len` bytes of payload, checksum included;
    /// returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short, or the packet longer than 65,535 bytes.
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = out.first_chunk_mut::<HEADER_BYTES>().ok_or(NoRoom)?;
        let total = u16::try_from(HEADER_BYTES + payload_len).map_err(|_| NoRoom)?;
        let fragment = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        put::<0, 2, HEADER_BYTES>(out, [0x45, self.traffic_class.0]);
        put::<2, 2, HEADER_BYTES>(out, total.to_be_bytes());
        put::<4, 2, HEADER_BYTES>(out, self.identification.to_be_bytes());
        put::<6, 2, HEADER_BYTES>(out, fragment.to_be_bytes());
        put::<8, 4, HEADER_BYTES>(out, [self.ttl, self.protocol, 0, 0]);
        put::<12, 4, HEADER_BYTES>(out, self.source.octets());
        put::<16, 4, HEADER_BYTES>(out, self.target.octets());
        let checksum = checksum::sum_array(out).finish();
        put::<10, 2, HEADER_BYTES>(out, checksum.to_be_bytes());
        Ok(HEADER_BYTES)
    }
}
