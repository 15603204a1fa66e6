//! Packets: the header of one that is sent, the datagram in one that was received, and the rule by
//! which the kernel picks out those of a port. Pure. Not here: sockets; see `network`.

use core::net::SocketAddrV4;
use core::ops::Range;
use socket2::SockFilter;
use sojourn_wire::checksum::{Sum, pseudo_v4};
use sojourn_wire::{ipv4, udp};

/// UDP's number in IPv4's header (RFC 768).
const UDP: u8 = 17;
/// Longest packet there is (bytes): IPv4's length has 16 bits.
pub(crate) const PACKET_MAX: usize = 65_535;

/// The header of a datagram, with its checksum. `data` has at most `DATA_MAX` bytes.
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

/// Who sent `packet`, an IPv4 packet with its header, and where in it the payload is; `None` unless
/// it is a whole, undamaged datagram for `port`.
pub(crate) fn parse(packet: &[u8], port: u16) -> Option<(SocketAddrV4, Range<usize>)> {
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
    // 0: its sender made none. The sum of the pseudo header alone: the kernel left the rest to an
    // interface that is none (loopback, veth), so that the packet never was where it could be
    // damaged.
    let is_right =
        sum.is_right() || datagram.checksum() == 0 || datagram.checksum() == pseudo.value();
    let begin = ip.header_len() + udp::HEADER_BYTES;
    is_right.then(|| (from, begin..begin + datagram.payload().len()))
}

/// The rule of a port's receiving thread, in the language of the BSD packet filter (McCanne and
/// Jacobson 1993): what follows the IPv4 header, whose length is in its first byte, has the port in
/// its third and fourth.
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

/// The rule that lets nothing through.
pub(crate) fn nothing() -> [SockFilter; 1] {
    [SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)]
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
