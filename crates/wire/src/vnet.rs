//! The offload header before a frame on packet sockets with `PACKET_VNET_HDR` and on tun devices
//! with `IFF_VNET_HDR`: packet(7), `struct virtio_net_hdr` of `linux/virtio_net.h`, and Virtio 1.3
//! section 5.1.6.
//!
//! The header of an outgoing frame describes the checksum that the interface must still complete
//! and the segments into which it must cut the payload. The header of an arriving frame describes
//! the checksums that need no verification and the segments that were merged. Packet sockets use it
//! in the machine's byte order.

use crate::octets::{put, u16_at};
use crate::{Malformed, NoRoom};

/// Bytes of the header, without the number of buffers that some devices add.
pub const HEADER_BYTES: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_ECN: u8 = 0x80;

/// The state of the transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// No information: an outgoing checksum is complete, an arriving one must be verified.
    #[default]
    Unknown,
    /// Only for arriving frames: the checksum was verified and is right.
    Valid,
    /// The field holds the sum of the pseudo header, and the interface that puts the frame on a
    /// wire completes it. An arriving frame with a partial checksum has not left this host's
    /// memory, so nothing needs to be verified.
    Partial {
        /// The offset in the frame at which the covered bytes begin: the transport header.
        start: u16,
        /// The offset of the field from `start`.
        offset: u16,
    },
}

/// The kind of generic segmentation offload by which a payload is cut or was merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of one size (`UDP_SEGMENT`), over either version.
    Udp,
    /// Another kind: UDP fragments, tunnels.
    Other(u8),
}

impl SegmentKind {
    const fn number(self) -> u8 {
        match self {
            Self::TcpV4 => 1,
            Self::TcpV6 => 4,
            Self::Udp => 5,
            Self::Other(number) => number,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::TcpV4),
            4 => Some(Self::TcpV6),
            5 => Some(Self::Udp),
            other => Some(Self::Other(other)),
        }
    }
}

/// Several segments in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segments {
    /// The kind of the segments.
    pub kind: SegmentKind,
    /// Payload bytes of each segment but the last.
    pub size: u16,
    /// True if the first TCP segment carries CWR, which the others must not (RFC 3168 section
    /// 6.1.2).
    pub has_cwr: bool,
}

/// An offload header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// The transport checksum.
    pub checksum: Checksum,
    /// The segments, or `None` if the frame is a single packet.
    pub segments: Option<Segments>,
    /// Bytes of all headers of the frame. The value is a hint; 0 is allowed if nothing is to be
    /// cut.
    pub header_len: u16,
}

impl Header {
    /// A header without any work or information.
    pub const NONE: Self = Self { checksum: Checksum::Unknown, segments: None, header_len: 0 };

    /// Returns true if the receiver has to verify the transport checksum.
    pub const fn must_verify(&self) -> bool {
        matches!(self.checksum, Checksum::Unknown)
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Malformed::Short`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
        let native = |word: u16| u16::from_ne_bytes(word.to_be_bytes());
        let checksum = if bytes[0] & NEEDS_CSUM != 0 {
            let start = native(u16_at::<6, HEADER_BYTES>(bytes));
            Checksum::Partial { start, offset: native(u16_at::<8, HEADER_BYTES>(bytes)) }
        } else if bytes[0] & DATA_VALID != 0 {
            Checksum::Valid
        } else {
            Checksum::Unknown
        };
        let segments = SegmentKind::from_number(bytes[1] & !GSO_ECN).map(|kind| Segments {
            kind,
            size: native(u16_at::<4, HEADER_BYTES>(bytes)),
            has_cwr: bytes[1] & GSO_ECN != 0,
        });
        Ok(Self { checksum, segments, header_len: native(u16_at::<2, HEADER_BYTES>(bytes)) })
    }

    /// Returns the header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        match self.checksum {
            Checksum::Unknown => {}
            Checksum::Valid => bytes[0] = DATA_VALID,
            Checksum::Partial { start, offset } => {
                bytes[0] = NEEDS_CSUM;
                put::<6, 2, HEADER_BYTES>(&mut bytes, start.to_ne_bytes());
                put::<8, 2, HEADER_BYTES>(&mut bytes, offset.to_ne_bytes());
            }
        }
        if let Some(segments) = self.segments {
            bytes[1] = segments.kind.number() | if segments.has_cwr { GSO_ECN } else { 0 };
            put::<4, 2, HEADER_BYTES>(&mut bytes, segments.size.to_ne_bytes());
        }
        put::<2, 2, HEADER_BYTES>(&mut bytes, self.header_len.to_ne_bytes());
        bytes
    }

    /// Writes the header; returns its length in bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        *out.first_chunk_mut::<HEADER_BYTES>().ok_or(NoRoom)? = self.to_bytes();
        Ok(HEADER_BYTES)
    }
}
