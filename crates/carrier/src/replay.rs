//! Segments and datagrams that a peer has sent already, given to the kernel again.
//!
//! These are: the peer's FIN, which has sent the session home and which the kernel has to see;
//! bytes beyond a gap, which the kernel takes in no other way; segments that came while the session
//! was on its way home; and datagrams that a program had not read when its socket went home. One
//! segment no peer has sent ([`ask_peer`]).
//!
//! Otherwise the kernel would see the FIN, or a lone question, only when the peer repeats it, a
//! retransmission time-out later. All go by a raw socket to this host's own address, so they come
//! in as from a wire and nobody else sees them. That takes `CAP_NET_RAW`; read raw(7) and ipv6(7).
//! Nothing depends on it. Not here: the state of the socket (`import`).

use crate::raw;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use sojourn_filter::Key;
use sojourn_options::OptionName;
use sojourn_proto::record::{Datagram, OutOfOrder, SessionRecord, TcpRecord};
use sojourn_wire::frame::{Fields, HEADERS_BYTES_MAX, Header, Offload, PacketFields};
use sojourn_wire::ip::{Ecn, TrafficClass};
use sojourn_wire::tcp::{self, Flags, Options, SeqNum};
use sojourn_wire::{FlowKey, Protocol};
use std::net::SocketAddr;

const IPV6_HDRINCL: OptionName = OptionName::new(libc::IPPROTO_IPV6, 36);

/// Payload of one segment (bytes), larger than any on a wire.
const PIECE: usize = 32 * 1024;

/// Gives the kernel the record's bytes beyond gaps and, with `has_ended`, the FIN that follows its
/// last byte.
///
/// # Errors
/// The kernel's; segments before the error have been given.
pub(crate) fn rest(record: &SessionRecord, tcp: &TcpRecord, has_ended: bool) -> Result<(), Errno> {
    if tcp.out_of_order.is_empty() && !has_ended {
        return Ok(());
    }
    let remote = record.remote.ok_or(Errno::NOTCONN)?;
    let raw = Raw::open(record.local)?;
    for OutOfOrder { sequence, bytes } in &tcp.out_of_order {
        let mut sequence = SeqNum(*sequence);
        for piece in bytes.chunks(PIECE) {
            let packet = segment(record.local, remote, tcp, &Said { sequence, piece, fin: false });
            raw.say(&packet.ok_or(Errno::INVAL)?)?;
            sequence += piece.len() as u32;
        }
    }
    if has_ended {
        let said = Said { sequence: SeqNum(tcp.rcv_nxt), piece: &[], fin: true };
        raw.say(&segment(record.local, remote, tcp, &said).ok_or(Errno::INVAL)?)?;
    }
    Ok(())
}

/// Gives a datagram, or each of several merged ones, to the socket at `local`.
///
/// # Errors
/// The kernel's.
pub(crate) fn datagram(datagram: &Datagram, local: SocketAddr) -> Result<(), Errno> {
    let flow = FlowKey { protocol: Protocol::Udp, source: datagram.source, target: local };
    let class = TrafficClass(datagram.traffic_class);
    // A packet with a hop limit of zero is dropped.
    let hop_limit = datagram.hop_limit.max(1);
    let fields = Fields { dscp: class.dscp(), hop_limit, ..Fields::default() };
    let header = Header::new(None, flow, fields).map_err(|_| Errno::INVAL)?;
    let size = match usize::from(datagram.segment_size) {
        0 => datagram.payload.len().max(1),
        size => size,
    };
    let raw = Raw::open(local)?;
    let mut rest = &datagram.payload[..];
    loop {
        let (part, after) = rest.split_at(size.min(rest.len()));
        let mut bytes = vec![0; HEADERS_BYTES_MAX];
        let emitted = header.emit_udp(
            &[part],
            PacketFields { ecn: class.ecn(), identification: 0, offload: Offload::Nothing },
            &mut bytes,
        );
        bytes.truncate(emitted.map_err(|_| Errno::INVAL)?.len);
        bytes.extend_from_slice(part);
        raw.say(&bytes)?;
        if after.is_empty() {
            return Ok(());
        }
        rest = after;
    }
}

/// Has the kernel's socket of a connection ask its peer whether there is still a connection, where
/// nobody here has that socket: the socket answers a segment from outside its window with an
/// acknowledgement (RFC 9293 section 3.10.7.4, "first"), and a peer without a connection answers
/// that with a reset.
///
/// # Errors
/// The kernel's.
pub(crate) fn ask_peer(key: &Key) -> Result<(), Errno> {
    let (local, remote) = (key.local(), key.remote().ok_or(Errno::NOTCONN)?);
    let raw = Raw::open(local)?;
    // The numbers of the connection are not known; one of these two is outside any window.
    for sequence in [SeqNum(0), SeqNum(1 << 31)] {
        let said = Said { sequence, piece: &[], fin: false };
        let packet = segment(local, remote, &TcpRecord::default(), &said);
        raw.say(&packet.ok_or(Errno::INVAL)?)?;
    }
    Ok(())
}

/// Gives the kernel packets that come in at an address of this host.
pub(crate) struct Raw {
    socket: OwnedFd,
    target: SocketAddr,
}

impl Raw {
    /// Opens the raw socket for packets to `local`, whose port does not matter.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open(local: SocketAddr) -> Result<Self, Errno> {
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
        if !local.is_ipv4() {
            raw::set_number(&socket, IPV6_HDRINCL, 1)?;
        }
        let mut target = local;
        // Raw sockets have no ports (raw(7)).
        target.set_port(0);
        Ok(Self { socket, target })
    }

    /// Sends a whole packet, as it is.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn say(&self, packet: &[u8]) -> Result<(), Errno> {
        rustix::net::sendto(&self.socket, packet, SendFlags::DONTWAIT, &self.target).map(drop)
    }
}

/// The content of a segment.
struct Said<'p> {
    sequence: SeqNum,
    piece: &'p [u8],
    fin: bool,
}

/// Builds the segment as the peer would send it.
fn segment(
    local: SocketAddr,
    remote: SocketAddr,
    tcp: &TcpRecord,
    said: &Said<'_>,
) -> Option<Vec<u8>> {
    let flow = FlowKey { protocol: Protocol::Tcp, source: remote, target: local };
    let header = Header::new(None, flow, Fields::default()).ok()?;
    let mut flags = Flags::ACK;
    flags.set(Flags::FIN, said.fin);
    let tcp = tcp::Header {
        source_port: remote.port(),
        target_port: local.port(),
        seq: said.sequence,
        ack: SeqNum(tcp.snd_una),
        flags,
        window: u16::try_from(tcp.snd_wnd >> tcp.snd_wscale).unwrap_or(u16::MAX),
        urgent: 0,
        options: Options::NONE,
    };
    let mut packet = vec![0; HEADERS_BYTES_MAX];
    let ecn = Ecn::NotCapable;
    let emitted = header.emit_tcp(
        &tcp,
        &[said.piece],
        PacketFields { ecn, identification: 0, offload: Offload::Nothing },
        &mut packet,
    );
    packet.truncate(emitted.ok()?.len);
    packet.extend_from_slice(said.piece);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{export, import};
    use rustix::fd::AsFd;
    use rustix::thread::CapabilitySet;
    use sojourn_proto::record::{Kind, TcpTuning};
    use sojourn_wire::frame::{self, LinkType};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

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
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            for (sequence, piece, fin) in [(7, &b""[..], true), (11, b"beyond a gap", false)] {
                let said = Said { sequence: SeqNum(sequence), piece, fin };
                let packet = segment(local, remote, &tcp, &said).unwrap();
                let frame = frame::parse(&packet, LinkType::Raw).unwrap();
                assert!(frame.checksum_is_right());
                assert_eq!((frame.key.source, frame.key.target), (remote, local));
                let segment = frame.segment().unwrap();
                let header = segment.header();
                assert_eq!((header.seq.0, header.ack.0, header.window), (sequence, 9, 64));
                assert_eq!(segment.payload(), piece);
                assert_eq!(header.flags.contains(Flags::FIN), fin);
                assert!(header.flags.contains(Flags::ACK));
            }
        }
    }

    /// Returns true if this process has the capabilities.
    fn may(wanted: CapabilitySet) -> bool {
        let held = rustix::thread::capabilities(None).unwrap().effective;
        if !held.contains(wanted) {
            eprintln!("skipped: it takes {wanted:?}");
        }
        held.contains(wanted)
    }

    #[test]
    fn what_is_beyond_a_gap_is_there_once_the_gap_is_filled() {
        if !may(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW) {
            return;
        }
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut own = listener.accept().unwrap().0;
            own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            // Nothing is said by the time of the move, so nothing is on its way.
            let mut record = export(own.as_fd(), &TcpTuning::default()).unwrap();
            let Kind::Tcp(tcp) = &mut record.kind else { panic!("{record:?}") };
            let sequence = tcp.rcv_nxt.wrapping_add(4);
            let bytes: Vec<u8> = (0..PIECE + 1000).map(|at| at as u8).collect();
            tcp.out_of_order.push(OutOfOrder { sequence, bytes: bytes.clone() });
            import(&record, own.as_fd(), || {}).unwrap();
            let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
            rest(&record, tcp, false).unwrap();
            peer.write_all(b"gap ").unwrap();
            let mut heard = vec![0; 4 + bytes.len()];
            own.read_exact(&mut heard).unwrap();
            assert!(heard[..4] == *b"gap " && heard[4..] == bytes, "{address}");
        }
    }

    #[test]
    fn packets_that_came_late_are_heard() {
        if !may(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut own = listener.accept().unwrap().0;
        own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let record = export(own.as_fd(), &TcpTuning::default()).unwrap();
        let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
        import(&record, own.as_fd(), || {}).unwrap();
        let said = |sequence, piece| {
            let said = Said { sequence: SeqNum(sequence), piece, fin: false };
            segment(record.local, record.remote.unwrap(), tcp, &said).unwrap()
        };
        let late = [said(tcp.rcv_nxt, b"one "), said(tcp.rcv_nxt.wrapping_add(4), b"two")];
        let raw = Raw::open(record.local).unwrap();
        late.iter().for_each(|packet| raw.say(packet).unwrap());
        let mut heard = [0; 7];
        own.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"one two");
    }
}
