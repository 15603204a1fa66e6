//! Packets: the header of a sent datagram, the datagram in a received packet, and the filter by
//! which the kernel picks the packets of a port. Pure. Not here: sockets (`network`).

use core::net::SocketAddrV4;
use core::ops::Range;
use socket2::SockFilter;
use sojourn_wire::checksum::{Sum, pseudo_v4};
use sojourn_wire::{ipv4, udp};

/// UDP's number in IPv4's header (RFC 768).
const UDP: u8 = 17;
/// Bytes of the longest packet: IPv4's length field has 16 bits.
pub(crate) const PACKET_MAX: usize = 65_535;

/// Writes the header of a datagram, with its checksum. `data` has at most `DATA_MAX` bytes.
pub(crate) fn head(
    from: SocketAddrV4,
    to: SocketAddrV4,
    data: &[u8],
) -> Option<[u8; udp::HEADER_BYTES]> {
    let mut head = [0; udp::HEADER_BYTES];
    let header = udp::Header { source_port: from.port(), target_port: to.port() };
    header.emit(data.len(), &mut head).ok()?;
    let mut sum = pseudo(from, to, udp::HEADER_BYTES + data.len());
    sum.add(&head);
    sum.add(data);
    udp::write_checksum(&mut head, udp::as_sent(sum.finish()));
    Some(head)
}

fn pseudo(from: SocketAddrV4, to: SocketAddrV4, len: usize) -> Sum {
    pseudo_v4(*from.ip(), *to.ip(), UDP, len as u16)
}

/// A datagram in a packet.
pub(crate) struct ParsedDatagram {
    pub(crate) source: SocketAddrV4,
    /// Where its payload lies in the packet.
    pub(crate) payload: Range<usize>,
}

/// Reads `packet`, an IPv4 packet with its header; `None` unless the packet is a whole, undamaged
/// datagram for `port`.
pub(crate) fn parse(packet: &[u8], port: u16) -> Option<ParsedDatagram> {
    let ip = ipv4::Packet::new(packet).ok()?;
    let datagram = udp::Datagram::new(ip.payload()).ok()?;
    if ip.protocol() != UDP || ip.is_fragment() || datagram.target_port() != port {
        return None;
    }
    let from = SocketAddrV4::new(ip.source(), datagram.source_port());
    let to = SocketAddrV4::new(ip.target(), port);
    let len = udp::HEADER_BYTES + datagram.payload().len();
    let pseudo = pseudo(from, to, len);
    let mut sum = pseudo;
    sum.add(&ip.payload()[..len]);
    // Checksum 0: the sender computed none (RFC 768). The pseudo header's sum alone: the kernel
    // left the rest to an interface that has no wire (loopback, veth), so nothing could damage the
    // packet.
    let is_valid =
        sum.is_valid() || datagram.checksum() == 0 || datagram.checksum() == pseudo.value();
    let begin = ip.header_len() + udp::HEADER_BYTES;
    let payload = begin..begin + datagram.payload().len();
    is_valid.then_some(ParsedDatagram { source: from, payload })
}

/// Returns the filter of a port, in the language of the BSD packet filter (McCanne and Jacobson
/// 1993): behind the IPv4 header, whose length is in its first byte, bytes 2 and 3 are the port.
pub(crate) fn rule(port: u16) -> [SockFilter; 5] {
    let word = |code: u32, yes, no, k| SockFilter::new(code as u16, yes, no, k);
    [
        word(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
        word(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 2),
        word(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(port)),
        word(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        word(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

/// Returns the filter that drops every packet.
pub(crate) fn nothing() -> [SockFilter; 1] {
    [SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)]
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
