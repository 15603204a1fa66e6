//! Segments that arrive while their session moves: on the way out, after the packets were turned
//! away from the kernel and before the engine has the session; and on the way home, after the
//! engine has exported the session and before the kernel has it.
//!
//! These segments are kept. If they were lost, a peer that waits for the answer to a lone question
//! would repeat it only after a time-out. When the engine gets the session it gets these segments
//! first (`InTransit::for_each`). The kernel gets them once it has the session, from the carrier,
//! since a program may not be allowed to send them: they travel in a file ([`InTransit::pack`],
//! [`each_in`]). Nothing depends on them: the peer sends a lost segment again. Not here: the
//! moments of a session's move (`pump` and its owner), and sending to the kernel
//! (`sojourn_carrier`).

use crate::sealed;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sojourn_proto::time::Instant;
use sojourn_wire::frame::{
    self, Fields, Frame, HEADERS_BYTES_MAX, Header, LinkType, Offload, PacketFields,
};
use sojourn_wire::{FlowKey, Protocol};
use std::collections::HashMap;

/// Bytes kept for one session at most: more than a peer has on its way as a rule.
const BYTES_MAX: usize = 8 << 20;
/// Bytes kept for all sessions at most, and the number of those sessions.
const ALL_BYTES_MAX: usize = 64 << 20;
const FLOWS_MAX: usize = 1024;
/// The age at which a segment that nobody has asked for is dropped (microseconds): a move takes
/// less.
const KEPT_US: u64 = 2_000_000;
/// Bytes of a packet's length in a file.
const LEN_BYTES: usize = 4;
/// Bytes of a file that are read at once: any packet and its length fit.
const PIECE_BYTES: usize = 128 << 10;

/// Segments for sessions that are not here, by the flow of the sessions' own frames. Only frames of
/// this process's sessions come to this process.
#[derive(Debug, Default)]
pub(crate) struct Unclaimed {
    kept: HashMap<FlowKey, InTransit>,
    bytes: usize,
}

impl Unclaimed {
    /// Keeps a segment for its session, if there is room. `size`: the size of the segments from
    /// which it was merged; 0 if it is one.
    #[cold]
    pub(crate) fn keep(&mut self, frame: &Frame<'_>, size: u16, at: Instant) {
        let flow = frame.key.reversed();
        if flow.protocol != Protocol::Tcp {
            return;
        }
        if !self.kept.contains_key(&flow) {
            self.forget_old(at);
            if self.kept.len() == FLOWS_MAX {
                return;
            }
        }
        let room = ALL_BYTES_MAX - self.bytes;
        let in_transit = self.kept.entry(flow).or_insert_with(|| InTransit::new(at));
        self.bytes += in_transit.keep(frame, size, room);
    }

    /// Takes the segments of a session.
    pub(crate) fn take(&mut self, flow: &FlowKey, at: Instant) -> Option<InTransit> {
        if self.kept.is_empty() {
            return None;
        }
        // However old these are: a peer sends a reset once, and what was sent again does no harm.
        let in_transit = self.kept.remove(flow);
        self.bytes -= in_transit.as_ref().map_or(0, |in_transit| in_transit.bytes);
        self.forget_old(at);
        in_transit
    }

    fn forget_old(&mut self, at: Instant) {
        let Self { kept, bytes } = self;
        kept.retain(|_, in_transit| {
            let stays = at.since(in_transit.since).as_micros() < KEPT_US;
            if !stays {
                *bytes -= in_transit.bytes;
            }
            stays
        });
    }
}

/// The segments of one session, as packets from the IP header on.
#[derive(Debug)]
pub struct InTransit {
    since: Instant,
    packets: Vec<KeptPacket>,
    bytes: usize,
}

/// A packet that is kept.
#[derive(Debug)]
struct KeptPacket {
    packet: Vec<u8>,
    /// The size of the segments from which it was merged.
    segment_size: u16,
}

impl InTransit {
    fn new(since: Instant) -> Self {
        Self { since, packets: Vec::new(), bytes: 0 }
    }

    /// Keeps a segment, if there is `room`; returns the bytes that it takes.
    fn keep(&mut self, frame: &Frame<'_>, size: u16, room: usize) -> usize {
        let Some(packet) = packet_of(frame) else { return 0 };
        let len = packet.len();
        if len > room.min(BYTES_MAX - self.bytes) {
            return 0;
        }
        self.bytes += len;
        self.packets.push(KeptPacket { packet, segment_size: size });
        len
    }

    /// Passes the segments on, in their order.
    pub(crate) fn for_each(&self, mut arrived: impl FnMut(&Frame<'_>, u16)) {
        for KeptPacket { packet, segment_size } in &self.packets {
            if let Ok(frame) = frame::parse(packet, LinkType::Raw) {
                arrived(&frame, *segment_size);
            }
        }
    }

    /// Makes a file with the packets, for [`each_in`].
    ///
    /// # Errors
    /// No descriptors or no memory left.
    pub fn pack(&self) -> Result<OwnedFd, Errno> {
        let lens = self.packets.iter().map(|kept| (kept.packet.len() as u32).to_le_bytes());
        let lens: Vec<_> = lens.collect();
        let packets = self.packets.iter().map(|kept| &kept.packet[..]);
        let pieces = lens.iter().map(|len| &len[..]).zip(packets);
        sealed::seal(pieces.flat_map(|(len, packet)| [len, packet]))
    }
}

/// Passes to `say` each packet in a file that a program has made ([`InTransit::pack`]), as it is
/// read, if it is a segment of the session whose own frames have `flow`. The packets are built
/// anew, so that nothing else from the file is passed on. A file that is not sealed has none.
pub fn each_in(file: impl AsFd, flow: &FlowKey, mut say: impl FnMut(&[u8])) {
    if !sealed::is_sealed(&file) {
        return;
    }
    // The file is read in pieces: bytes read a moment ago are still in the cache when they are
    // used.
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    // A program can make a longer file than `pack` does: the rest is not read. The eighth is for
    // the lengths.
    while at < BYTES_MAX + BYTES_MAX / 8 {
        let Ok(len) = sealed::read_at(&file, &mut piece, at as u64) else { return };
        let read = &piece[..len];
        let mut rest = read;
        while let Some(packet) = take_packet(&mut rest) {
            if let Ok(frame) = frame::parse(packet, LinkType::Raw)
                && frame.key == flow.reversed()
                && let Some(packet) = packet_of(&frame)
            {
                say(&packet);
            }
        }
        // A packet longer than the rest of this piece begins the next one.
        let done = read.len() - rest.len();
        if done == 0 {
            return;
        }
        at += done;
    }
}

/// Takes the first packet off bytes that [`InTransit::pack`] wrote.
fn take_packet<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = bytes.split_first_chunk::<LEN_BYTES>()?;
    let (packet, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = after;
    Some(packet)
}

/// Builds the packet of a TCP frame, with all checksums: frames between a host's own interfaces may
/// lack them.
fn packet_of(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let segment = frame.segment()?;
    let fields = Fields {
        dscp: frame.traffic_class.dscp(),
        hop_limit: frame.hop_limit,
        ..Fields::default()
    };
    let header = Header::new(None, frame.key, fields).ok()?;
    let mut packet = vec![0; HEADERS_BYTES_MAX];
    let (payload, ecn) = (segment.payload(), frame.traffic_class.ecn());
    let emitted = header.emit_tcp(
        &segment.header(),
        &[payload],
        PacketFields { ecn, identification: 0, offload: Offload::Nothing },
        &mut packet,
    );
    packet.truncate(emitted.ok()?.len);
    packet.extend_from_slice(payload);
    Some(packet)
}

/// Collects everything that [`each_in`] passes on.
#[cfg(test)]
pub(crate) fn all_in(file: impl AsFd, flow: &FlowKey) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    each_in(file, flow, |packet| packets.push(packet.to_vec()));
    packets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{flow, packet};

    fn unclaimed_with(packets: &[(u16, u64)]) -> Unclaimed {
        let mut unclaimed = Unclaimed::default();
        for (port, us) in packets {
            let came = packet(flow(*port).reversed(), 7, b"late", Offload::Nothing);
            let came = frame::parse(&came, LinkType::Raw).unwrap();
            unclaimed.keep(&came, 0, Instant::from_micros(*us));
        }
        unclaimed
    }

    #[test]
    fn what_is_kept_is_what_came_and_its_checksums_are_right() {
        for (own, peer) in [("192.0.2.1:1", "192.0.2.2:2"), ("[2001:db8::1]:1", "[2001:db8::2]:2")]
        {
            let (source, target) = (peer.parse().unwrap(), own.parse().unwrap());
            let flow = FlowKey { protocol: Protocol::Tcp, source, target };
            // As a neighbour on the same machine sends it: the checksum is left to a device that
            // there is not.
            let came = packet(flow, 7, b"late", Offload::Checksum);
            let came = frame::parse(&came, LinkType::Raw).unwrap();
            let mut in_transit = InTransit::new(Instant::ZERO);
            assert!(in_transit.keep(&came, 7, 1000) > 0);
            let file = in_transit.pack().unwrap();
            let [kept] = &all_in(&file, &flow.reversed())[..] else { panic!("{in_transit:?}") };
            let kept = frame::parse(kept, LinkType::Raw).unwrap();
            assert!(kept.checksum_is_right());
            assert_eq!((kept.key, kept.traffic_class), (came.key, came.traffic_class));
            let segments = [kept, came].map(|frame| frame.segment().unwrap());
            assert_eq!(segments[0].header(), segments[1].header());
            assert_eq!(segments[0].payload(), b"late");
            assert!(all_in(&file, &flow).is_empty(), "they are of another session");
        }
    }

    #[test]
    fn a_long_file_is_read_in_pieces() {
        let (own, mut in_transit) = (flow(1), InTransit::new(Instant::ZERO));
        let sizes = [60_000, 1, 65_000, 40_000, 65_483, 65_483, 0, 9].into_iter().cycle().take(40);
        for size in sizes.clone() {
            let came = packet(own.reversed(), 7, &vec![size as u8; size], Offload::Nothing);
            assert!(
                in_transit.keep(&frame::parse(&came, LinkType::Raw).unwrap(), 0, usize::MAX) > 0
            );
        }
        let found = all_in(in_transit.pack().unwrap(), &own);
        assert_eq!(found.len(), 40);
        for (size, packet) in sizes.zip(&found) {
            let frame = frame::parse(packet, LinkType::Raw).unwrap();
            assert_eq!(frame.segment().unwrap().payload(), vec![size as u8; size]);
        }
    }

    #[test]
    fn of_a_file_with_anything_nothing_is_taken() {
        let own = flow(1);
        let whole = unclaimed_with(&[(1, 0), (1, 0)]).take(&own, Instant::ZERO).unwrap();
        let good = sealed::read(whole.pack().unwrap(), 1 << 20).unwrap();
        assert_eq!(all_in(sealed::seal([&good[..]]).unwrap(), &own).len(), 2);
        for cut in 0..good.len() {
            let file = sealed::seal([&good[..cut]]).unwrap();
            assert!(all_in(file, &own).len() <= 1, "{cut}");
        }
        assert!(all_in(sealed::seal([&[0xff; 100][..]]).unwrap(), &own).is_empty());
        assert!(all_in(std::io::pipe().unwrap().0, &own).is_empty());
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let came = |port| packet(flow(port).reversed(), 7, &[1; 60_000], Offload::Nothing);
        let mut unclaimed = Unclaimed::default();
        for port in 0..20 {
            let came = came(port);
            for _ in 0..BYTES_MAX / 60_000 + 10 {
                unclaimed.keep(&frame::parse(&came, LinkType::Raw).unwrap(), 0, Instant::ZERO);
            }
            let kept = unclaimed.kept[&flow(port)].bytes;
            assert!(kept <= BYTES_MAX && unclaimed.bytes <= ALL_BYTES_MAX, "{kept}");
            assert!(port > 0 || kept > BYTES_MAX - 70_000, "{kept}");
        }
        assert!(unclaimed.bytes > ALL_BYTES_MAX - 70_000);
        for port in 0..20 {
            unclaimed.take(&flow(port), Instant::ZERO).unwrap();
        }
        assert_eq!(unclaimed.bytes, 0);
    }

    #[test]
    fn what_nobody_asks_for_is_let_go_of() {
        let old = KEPT_US - 1;
        let mut unclaimed = unclaimed_with(&[(1, 0), (2, old), (1, old)]);
        assert_eq!(unclaimed.kept.len(), 2);
        let at = Instant::from_micros(KEPT_US);
        let in_transit = unclaimed.take(&flow(2), at).unwrap();
        assert!(unclaimed.take(&flow(1), at).is_none());
        let mut count = 0;
        in_transit.for_each(|frame, _| count += frame.segment().unwrap().payload().len());
        assert_eq!(count, 4);
        assert!(unclaimed.take(&flow(2), at).is_none());
        assert_eq!(unclaimed.bytes, 0);
    }

    /// A reset that came for a session whose way here takes long is not sent again.
    #[test]
    fn a_session_gets_its_own_however_old_they_are() {
        let mut unclaimed = unclaimed_with(&[(1, 0), (2, 0)]);
        let at = Instant::from_micros(2 * KEPT_US);
        assert!(unclaimed.take(&flow(1), at).is_some());
        assert!(unclaimed.take(&flow(2), at).is_none());
        assert_eq!(unclaimed.bytes, 0);
    }
}
