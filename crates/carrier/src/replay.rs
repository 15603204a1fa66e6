//! What a peer has said already, said to the kernel again: its FIN, which the engine has seen and has sent the session home for, where it means what it
//! means; and datagrams that a program had not read when its socket went home.
//!
//! Without this the kernel would see the FIN when the peer repeats it, a retransmission time-out later. Both go by a raw socket to this host's own
//! address, so they come in as from a wire and nobody else sees them. raw(7), ipv6(7); it takes `CAP_NET_RAW`.

use crate::raw;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use sojourn_proto::record::{Datagram, SessionRecord, TcpRecord};
use sojourn_wire::frame::{Fields, HEADERS_BYTES_MAX, Header, Offload};
use sojourn_wire::ip::Ecn;
use sojourn_wire::tcp::{self, Flags, Options, SeqNum};
use sojourn_wire::{FlowKey, Protocol};
use std::net::SocketAddr;

const IPV6_HDRINCL: (i32, i32) = (libc::IPPROTO_IPV6, 36);

/// Says the FIN that follows the last byte of the record. Nothing depends on it: the peer repeats what is not acknowledged.
///
/// # Errors
/// The kernel's.
pub(crate) fn fin(record: &SessionRecord, tcp: &TcpRecord) -> Result<(), Errno> {
    let remote = record.remote.ok_or(Errno::NOTCONN)?;
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let len = segment(record.local, remote, tcp, &mut bytes).ok_or(Errno::INVAL)?;
    say(&bytes[..len], record.local)
}

/// Says a datagram, or each of several merged ones, to the socket at `local`.
///
/// # Errors
/// The kernel's.
pub(crate) fn datagram(datagram: &Datagram, local: SocketAddr) -> Result<(), Errno> {
    let flow = FlowKey { protocol: Protocol::Udp, source: datagram.source, target: local };
    let header = Header::new(None, flow, Fields::default()).map_err(|_| Errno::INVAL)?;
    let size = match usize::from(datagram.segment_size) {
        0 => datagram.payload.len().max(1),
        size => size,
    };
    let mut rest = &datagram.payload[..];
    loop {
        let (part, after) = rest.split_at(size.min(rest.len()));
        let mut bytes = vec![0; HEADERS_BYTES_MAX];
        let emitted = header.emit_udp(&[part], Ecn::NotCapable, 0, Offload::Nothing, &mut bytes);
        bytes.truncate(emitted.map_err(|_| Errno::INVAL)?.len);
        bytes.extend_from_slice(part);
        say(&bytes, local)?;
        if after.is_empty() {
            return Ok(());
        }
        rest = after;
    }
}

/// Gives the kernel a packet that comes in at `local`.
fn say(packet: &[u8], local: SocketAddr) -> Result<(), Errno> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
    if !local.is_ipv4() {
        raw::set_number(&socket, IPV6_HDRINCL, 1)?;
    }
    let mut target = local;
    // Raw sockets have no ports.
    target.set_port(0);
    rustix::net::sendto(&socket, packet, SendFlags::DONTWAIT, &target)?;
    Ok(())
}

/// The segment, as the peer would send it; its length.
fn segment(
    local: SocketAddr,
    remote: SocketAddr,
    tcp: &TcpRecord,
    bytes: &mut [u8],
) -> Option<usize> {
    let flow = FlowKey { protocol: Protocol::Tcp, source: remote, target: local };
    let header = Header::new(None, flow, Fields::default()).ok()?;
    let mut flags = Flags::FIN;
    flags.set(Flags::ACK, true);
    let tcp = tcp::Header {
        source_port: remote.port(),
        target_port: local.port(),
        seq: SeqNum(tcp.rcv_nxt),
        ack: SeqNum(tcp.snd_una),
        flags,
        window: u16::try_from(tcp.snd_wnd >> tcp.snd_wscale).unwrap_or(u16::MAX),
        urgent: 0,
        options: Options::NONE,
    };
    let emitted = header.emit_tcp(&tcp, &[], Ecn::NotCapable, 0, Offload::Nothing, bytes);
    emitted.ok().map(|emitted| emitted.len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::frame::{self, Link};

    #[test]
    fn it_is_what_the_peer_would_say() {
        let tcp = TcpRecord {
            rcv_nxt: 7,
            snd_una: 9,
            snd_wnd: 64 << 3,
            snd_wscale: 3,
            ..TcpRecord::default()
        };
        for (local, remote) in
            [("192.0.2.1:1", "192.0.2.2:2"), ("[2001:db8::1]:1", "[2001:db8::2]:2")]
        {
            let mut bytes = [0; HEADERS_BYTES_MAX];
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let len = segment(local, remote, &tcp, &mut bytes).unwrap();
            let frame = frame::parse(&bytes[..len], Link::Raw).unwrap();
            assert!(frame.checksum_is_right());
            assert_eq!((frame.key.source, frame.key.target), (remote, local));
            let header = frame.segment().unwrap().header();
            assert_eq!((header.seq.0, header.ack.0, header.window), (7, 9, 64));
            assert!(header.flags.contains(Flags::FIN) && header.flags.contains(Flags::ACK));
        }
    }
}
