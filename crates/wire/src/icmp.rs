//! ICMP errors and the packets that they quote: RFC 792 and RFC 1191 for IPv4, RFC 4443 for IPv6.
//!
//! Here is only the information for a transport: the packet that did not arrive, and the reason.
//! Echo, redirects and neighbour discovery stay in the kernel.

use crate::ip::number;
use crate::octets::{put, u16_at, u32_at};
use crate::{FlowKey, Malformed, NoRoom, Protocol, SeqNum, checksum, frame, ipv4, ipv6};
use core::net::{IpAddr, Ipv6Addr};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// The largest number of bytes that a message quotes over IPv4 (RFC 1812 section 4.3.2.3, with the
/// message's own headers taken off).
pub const QUOTE_BYTES_MAX_V4: usize = 576 - ipv4::HEADER_BYTES - HEADER_BYTES;
/// The largest number of bytes that a message quotes over IPv6 (RFC 4443 section 2.4(c)).
pub const QUOTE_BYTES_MAX_V6: usize = 1280 - ipv6::HEADER_BYTES - HEADER_BYTES;

/// The reason why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The destination is unreachable, with the code of this version of ICMP.
    Unreachable {
        /// Net, host, protocol, port and so on.
        code: u8,
    },
    /// The packet is longer than a link of the path allows and must not be fragmented. Over IPv4 an
    /// MTU of 0 means that the router does not report it (RFC 1191).
    TooBig {
        /// The link's MTU in bytes, including the IP header.
        mtu: u32,
    },
    /// The hop limit reached 0 (code 0), or fragments are missing (code 1).
    TimeExceeded {
        /// The code.
        code: u8,
    },
    /// A host or router found a problem in a header.
    ParameterProblem {
        /// The code of the problem.
        code: u8,
    },
}

/// An ICMP error about a TCP or UDP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Error {
    /// The reason.
    pub reason: Reason,
    /// The flow of the packet as it was sent: the source is the receiver of the error.
    pub flow: FlowKey,
    /// The sequence number of a TCP segment, by which the receiver can check that the segment was
    /// sent (RFC 5927 section 4.1).
    pub seq: Option<SeqNum>,
}

impl Error {
    /// Reads the payload of an IPv4 packet with protocol ICMP.
    ///
    /// # Errors
    /// [`Malformed::Checksum`], or another value if the quoted packet is damaged;
    /// [`Malformed::NotTransport`] if the message is not an error, or not about TCP or UDP;
    /// [`Malformed::Fragment`] if the quoted fragment has no ports.
    pub fn parse_v4(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, quoted) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
        if !checksum::sum(bytes).is_valid() {
            return Err(Malformed::Checksum);
        }
        let code = header[1];
        let reason = match header[0] {
            3 if code == 4 => Reason::TooBig { mtu: u16_at::<6, HEADER_BYTES>(header).into() },
            3 => Reason::Unreachable { code },
            11 => Reason::TimeExceeded { code },
            12 => Reason::ParameterProblem { code },
            _ => return Err(Malformed::NotTransport),
        };
        let packet = ipv4::Packet::new_cut(quoted)?;
        if packet.is_later_fragment() {
            return Err(Malformed::Fragment);
        }
        let (source, target) = (packet.source().into(), packet.target().into());
        Self::about(reason, source, target, packet.protocol(), packet.payload())
    }

    /// Reads the payload of an IPv6 packet from `source` to `target` with protocol ICMPv6.
    ///
    /// # Errors
    /// As for [`Error::parse_v4`].
    pub fn parse_v6(bytes: &[u8], source: Ipv6Addr, target: Ipv6Addr) -> Result<Self, Malformed> {
        let (header, quoted) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
        let mut sum = checksum::pseudo_v6(source, target, number::ICMPV6, bytes.len() as u32);
        sum.add(bytes);
        if !sum.is_valid() {
            return Err(Malformed::Checksum);
        }
        let code = header[1];
        let reason = match header[0] {
            1 => Reason::Unreachable { code },
            2 => Reason::TooBig { mtu: u32_at::<4, HEADER_BYTES>(header) },
            3 => Reason::TimeExceeded { code },
            4 => Reason::ParameterProblem { code },
            _ => return Err(Malformed::NotTransport),
        };
        let packet = ipv6::Packet::new_cut(quoted)?;
        let upper = packet.upper()?;
        if upper.is_later_fragment {
            return Err(Malformed::Fragment);
        }
        let (source, target) = (packet.source().into(), packet.target().into());
        Self::about(reason, source, target, upper.protocol, upper.payload)
    }

    /// Builds the error. Only the first eight bytes of a transport header are guaranteed to be
    /// quoted (RFC 792).
    fn about(
        reason: Reason,
        source: IpAddr,
        target: IpAddr,
        protocol: u8,
        quoted: &[u8],
    ) -> Result<Self, Malformed> {
        let protocol = Protocol::from_number(protocol).ok_or(Malformed::NotTransport)?;
        let head = quoted.first_chunk::<8>().ok_or(Malformed::Short)?;
        let flow = FlowKey {
            protocol,
            source: frame::endpoint(source, u16_at::<0, 8>(head)),
            target: frame::endpoint(target, u16_at::<2, 8>(head)),
        };
        let seq = (protocol == Protocol::Tcp).then(|| SeqNum(u32_at::<4, 8>(head)));
        Ok(Self { reason, flow, seq })
    }
}

/// Writes an ICMP message about the IPv4 packet `original`; returns its length in bytes.
///
/// # Errors
/// [`NoRoom`] if `out` is too short.
pub fn emit_v4(reason: Reason, original: &[u8], out: &mut [u8]) -> Result<usize, NoRoom> {
    let (kind, code, argument) = match reason {
        Reason::Unreachable { code } => (3, code, 0),
        Reason::TooBig { mtu } => (3, 4, mtu.min(0xffff)),
        Reason::TimeExceeded { code } => (11, code, 0),
        Reason::ParameterProblem { code } => (12, code, 0),
    };
    let head = Head { kind, code, argument };
    let quoted = original.get(..QUOTE_BYTES_MAX_V4).unwrap_or(original);
    head.emit(quoted, checksum::Sum::new(), out)
}

/// Writes an ICMPv6 message from `source` to `target` about the IPv6 packet `original`; returns its
/// length in bytes.
///
/// # Errors
/// [`NoRoom`] if `out` is too short.
pub fn emit_v6(
    reason: Reason,
    original: &[u8],
    source: Ipv6Addr,
    target: Ipv6Addr,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let (kind, code, argument) = match reason {
        Reason::Unreachable { code } => (1, code, 0),
        Reason::TooBig { mtu } => (2, 0, mtu),
        Reason::TimeExceeded { code } => (3, code, 0),
        Reason::ParameterProblem { code } => (4, code, 0),
    };
    let quoted = original.get(..QUOTE_BYTES_MAX_V6).unwrap_or(original);
    let len = (HEADER_BYTES + quoted.len()) as u32;
    let pseudo = checksum::pseudo_v6(source, target, number::ICMPV6, len);
    Head { kind, code, argument }.emit(quoted, pseudo, out)
}

/// The header of a message without its checksum.
#[derive(Clone, Copy)]
struct Head {
    kind: u8,
    code: u8,
    /// The second word, whose meaning depends on the kind.
    argument: u32,
}

impl Head {
    /// Writes a message that quotes `quoted`. `sum` is the checksum of what precedes the header:
    /// of the pseudo header, if there is one.
    fn emit(self, quoted: &[u8], mut sum: checksum::Sum, out: &mut [u8]) -> Result<usize, NoRoom> {
        let len = HEADER_BYTES + quoted.len();
        let (header, rest) = out
            .get_mut(..len)
            .and_then(|out| out.split_first_chunk_mut::<HEADER_BYTES>())
            .ok_or(NoRoom)?;
        rest.copy_from_slice(quoted);
        put::<0, 4, HEADER_BYTES>(header, [self.kind, self.code, 0, 0]);
        put::<4, 4, HEADER_BYTES>(header, self.argument.to_be_bytes());
        sum.add(header);
        sum.add(quoted);
        put::<2, 2, HEADER_BYTES>(header, sum.finish().to_be_bytes());
        Ok(len)
    }
}
