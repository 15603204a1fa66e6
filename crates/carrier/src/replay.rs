//! A peer's FIN, said to the kernel again: the engine has seen it and sent the session home, where it means what it means.
//!
//! Without this the kernel would see it when the peer repeats it, a retransmission time-out later. The segment goes by a raw socket to this host's own
//! address, so it comes in as from a wire and nobody else sees it. raw(7), ipv6(7); it takes `CAP_NET_RAW`.

use crate::raw;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use sojourn_proto::record::{SessionRecord, TcpRecord};
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
    let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
    if !remote.is_ipv4() {
        raw::set_number(&socket, IPV6_HDRINCL, 1)?;
    }
    let mut target = record.local;
    // Raw sockets have no ports.
    target.set_port(0);
    rustix::net::sendto(&socket, &bytes[..len], SendFlags::DONTWAIT, &target)?;
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
