//! Segments that come while their session is on its way: home, when the engine has said where it stands already and the kernel does not have
//! it yet; and out, when the packets are turned away from the kernel already and the engine does not have it yet.
//!
//! They are kept. Without this they would be lost, and a peer that waits for the answer to a lone question would repeat it only after a
//! time-out. When the engine gets the session it gets them first. To the kernel they are said once it has the session, by a raw socket to
//! this host's own address: so they come in as from a wire and nobody else sees them. raw(7), ipv6(7); it takes `CAP_NET_RAW`. Nothing
//! depends on it: what is lost even so the peer sends again. Not here: when a session goes and is there (`pump` and its owner).

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use sojourn_proto::time::Instant;
use sojourn_wire::frame::{self, Fields, Frame, HEADERS_BYTES_MAX, Header, Link, Offload};
use sojourn_wire::{FlowKey, Protocol};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Bytes kept for one session at most: more than a peer has on its way as a rule.
const BYTES_MAX: usize = 8 << 20;
/// Sessions for which something is kept, at most.
const FLOWS_MAX: usize = 1024;
/// What nobody has asked for after so long (microseconds) is for nobody: a move takes less.
const KEPT_US: u64 = 2_000_000;

/// What has come for sessions that are not here, by what their own frames say. Nobody else's frames come to this process.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    kept: HashMap<FlowKey, Late>,
}

impl Strays {
    /// Keeps a segment for its session.
    #[cold]
    pub(crate) fn keep(&mut self, frame: &Frame<'_>, segment_size: u16, at: Instant) {
        let is_over = |late: &Late| at.since(late.since).as_micros() >= KEPT_US;
        self.kept.retain(|_, late| !is_over(late));
        let flow = frame.key.reversed();
        if flow.protocol != Protocol::Tcp {
            return;
        }
        if self.kept.len() < FLOWS_MAX || self.kept.contains_key(&flow) {
            self.kept.entry(flow).or_insert_with(|| Late::new(&flow, at)).keep(frame, segment_size);
        }
    }

    /// What has come for a session.
    pub(crate) fn take(&mut self, flow: &FlowKey) -> Option<Late> {
        self.kept.remove(flow)
    }
}

/// What has come for one session, as packets from the IP header on.
#[derive(Debug)]
pub struct Late {
    own: SocketAddr,
    since: Instant,
    /// With the size of the segments that each was merged of; 0: it is one.
    packets: Vec<(Vec<u8>, u16)>,
    bytes: usize,
}

impl Late {
    /// Nothing yet, for the session whose own frames say `flow`.
    fn new(flow: &FlowKey, since: Instant) -> Self {
        Self { own: flow.source, since, packets: Vec::new(), bytes: 0 }
    }

    /// Keeps a segment, if there is room.
    fn keep(&mut self, frame: &Frame<'_>, segment_size: u16) {
        if let Some(packet) = packet_of(frame)
            && self.bytes + packet.len() <= BYTES_MAX
        {
            self.bytes += packet.len();
            self.packets.push((packet, segment_size));
        }
    }

    /// One after the other, as they came.
    pub(crate) fn for_each(&self, mut arrived: impl FnMut(&Frame<'_>, u16)) {
        for (packet, segment_size) in &self.packets {
            if let Ok(frame) = frame::parse(packet, Link::Raw) {
                arrived(&frame, *segment_size);
            }
        }
    }

    /// Says all of it to the kernel.
    ///
    /// # Errors
    /// The kernel's; what has been said is said.
    pub fn replay(&self) -> Result<(), Errno> {
        if self.packets.is_empty() {
            return Ok(());
        }
        let family = if self.own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC;
        // Of this protocol packets have their headers already.
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
        // Raw sockets have no ports.
        let target = SocketAddr::new(self.own.ip(), 0);
        for (packet, _) in &self.packets {
            rustix::net::sendto(&socket, packet, SendFlags::DONTWAIT, &target)?;
        }
        Ok(())
    }
}

/// The packet that a frame of TCP was, with all of its checksums: of what a host's own interfaces pass on they may be missing.
fn packet_of(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let segment = frame.segment()?;
    let fields = Fields {
        dscp: frame.traffic_class.dscp(),
        hop_limit: frame.hop_limit,
        ..Fields::default()
    };
    let flow = FlowKey { protocol: Protocol::Tcp, ..frame.key };
    let header = Header::new(None, flow, fields).ok()?;
    let mut packet = vec![0; HEADERS_BYTES_MAX];
    let (payload, ecn) = (segment.payload(), frame.traffic_class.ecn());
    let emitted =
        header.emit_tcp(&segment.header(), &[payload], ecn, 0, Offload::Nothing, &mut packet);
    packet.truncate(emitted.ok()?.len);
    packet.extend_from_slice(payload);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::ip::Ecn;
    use sojourn_wire::tcp::{self, Flags, Options, SeqNum};

    fn packet(flow: FlowKey, payload: &[u8], offload: Offload) -> Vec<u8> {
        let tcp = tcp::Header {
            source_port: 0,
            target_port: 0,
            seq: SeqNum(7),
            ack: SeqNum(9),
            flags: Flags::ACK,
            window: 64,
            urgent: 0,
            options: Options::NONE,
        };
        let header = Header::new(None, flow, Fields::default()).unwrap();
        let mut bytes = vec![0; HEADERS_BYTES_MAX];
        let emitted = header.emit_tcp(&tcp, &[payload], Ecn::Capable0, 0, offload, &mut bytes);
        bytes.truncate(emitted.unwrap().len);
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn what_is_kept_is_what_came_and_its_checksums_are_right() {
        for (own, peer) in [("192.0.2.1:1", "192.0.2.2:2"), ("[2001:db8::1]:1", "[2001:db8::2]:2")]
        {
            let (source, target) = (peer.parse().unwrap(), own.parse().unwrap());
            let flow = FlowKey { protocol: Protocol::Tcp, source, target };
            // As a neighbour on the same machine sends it: the checksum is left to a device that there is not.
            let came = packet(flow, b"late", Offload::Checksum);
            let came = frame::parse(&came, Link::Raw).unwrap();
            let mut late = Late::new(&flow.reversed(), Instant::ZERO);
            late.keep(&came, 7);
            let [(kept, 7)] = &late.packets[..] else { panic!("{late:?}") };
            let kept = frame::parse(kept, Link::Raw).unwrap();
            assert!(kept.checksum_is_right());
            assert_eq!((kept.key, kept.traffic_class), (came.key, came.traffic_class));
            let segments = [kept, came].map(|frame| frame.segment().unwrap());
            assert_eq!(segments[0].header(), segments[1].header());
            assert_eq!(segments[0].payload(), b"late");
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let (source, target) = ("192.0.2.2:2".parse().unwrap(), "192.0.2.1:1".parse().unwrap());
        let flow = FlowKey { protocol: Protocol::Tcp, source, target };
        let mut late = Late::new(&flow.reversed(), Instant::ZERO);
        let came = packet(flow, &[1; 60_000], Offload::Nothing);
        for _ in 0..BYTES_MAX / 60_000 + 10 {
            late.keep(&frame::parse(&came, Link::Raw).unwrap(), 0);
        }
        assert!(late.bytes <= BYTES_MAX && late.bytes > BYTES_MAX - 70_000, "{}", late.bytes);
    }

    #[test]
    fn what_nobody_asks_for_is_let_go_of() {
        let flow = |port| {
            let (source, target) = (([192, 0, 2, 2], port).into(), ([192, 0, 2, 1], 1).into());
            FlowKey { protocol: Protocol::Tcp, source, target }
        };
        let mut strays = Strays::default();
        let mut keep = |strays: &mut Strays, port, at| {
            let came = packet(flow(port), b"late", Offload::Nothing);
            strays.keep(&frame::parse(&came, Link::Raw).unwrap(), 0, at);
        };
        keep(&mut strays, 1, Instant::ZERO);
        keep(&mut strays, 2, Instant::from_micros(KEPT_US - 1));
        keep(&mut strays, 1, Instant::from_micros(KEPT_US - 1));
        assert_eq!(strays.kept.len(), 2);
        keep(&mut strays, 2, Instant::from_micros(KEPT_US));
        assert!(strays.take(&flow(1).reversed()).is_none());
        let late = strays.take(&flow(2).reversed()).unwrap();
        let mut count = 0;
        late.for_each(|frame, _| count += frame.segment().unwrap().payload().len());
        assert_eq!(count, 8);
        assert!(strays.take(&flow(2).reversed()).is_none());
    }
}
