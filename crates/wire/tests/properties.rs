//! Properties: written headers are read back equal; no bytes make reading panic; sums computed in
//! different ways agree.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::values::*;
use proptest::collection::vec;
use proptest::prelude::*;
use sojourn_wire::frame::{self, HEADERS_BYTES_MAX, LinkType, Offload, PacketFields};
use sojourn_wire::tcp::{self, HEADER_BYTES_MAX, Options};
use sojourn_wire::vnet::{self, Checksum, SegmentKind, Segments};
use sojourn_wire::{Ecn, Protocol, arp, checksum, ethernet, fuzz, ipv4, ipv6, udp};

fn offload() -> impl Strategy<Value = Offload> {
    prop_oneof![
        Just(Offload::Nothing),
        Just(Offload::Checksum),
        (1..9000_u16).prop_map(Offload::Segments)
    ]
}

/// Completes a partial checksum as an interface does: packet(7), `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
fn complete(bytes: &mut [u8], header: vnet::Header) {
    if let Checksum::Partial { start, offset } = header.checksum {
        let sum = checksum::sum(&bytes[usize::from(start)..]).finish();
        let at = usize::from(start + offset);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

proptest! {
    #[test]
    fn tcp_headers(header in header()) {
        let mut out = [0xee; HEADER_BYTES_MAX];
        let len = header.emit(&mut out).unwrap();
        prop_assert_eq!(len, header.len());
        prop_assert!(len % 4 == 0);
        let segment = tcp::Segment::new(&out).unwrap();
        prop_assert_eq!((segment.header(), segment.header_len()), (header, len));
        prop_assert!(header.emit(&mut out[..len - 1]).is_err());
        // Only the header is written: the bytes behind it are untouched.
        prop_assert!(out[len..].iter().all(|byte| *byte == 0xee));
    }

    #[test]
    fn tcp_frames(
        link in proptest::option::of(link()),
        flow in flow(Protocol::Tcp),
        (fields, ecn, identification) in (fields(), ecn(), any::<u16>()),
        tcp in header(),
        payload in payload(),
        cut in any::<prop::sample::Index>(),
        offload in offload(),
    ) {
        let header = frame::Header::new(link, flow, fields).unwrap();
        let parts = payload.split_at(cut.index(payload.len() + 1));
        let mut out = vec![0xee; HEADERS_BYTES_MAX];
        let parts = [parts.0, parts.1];
        let emitted = header.emit_tcp(&tcp, &parts, PacketFields { ecn, identification, offload }, &mut out).unwrap();
        out.truncate(emitted.len);
        out.extend(&payload);
        complete(&mut out, emitted.vnet);
        let kind = if link.is_some() { LinkType::Ethernet } else { LinkType::Raw };
        let frame = frame::parse(&out, kind).unwrap();
        prop_assert!(frame.checksum_is_right());
        prop_assert_eq!(frame.key, flow);
        prop_assert_eq!(frame.payload(), payload.as_slice());
        prop_assert_eq!(frame.traffic_class.ecn(), ecn);
        prop_assert_eq!(frame.traffic_class.dscp(), fields.dscp);
        prop_assert_eq!(frame.hop_limit, fields.hop_limit);
        prop_assert_eq!(frame.ethernet.map(|header| header.tags), link.map(|link| link.tags));
        let expected = tcp::Header {
            source_port: flow.source.port(),
            target_port: flow.target.port(),
            ..tcp
        };
        prop_assert_eq!(frame.segment().unwrap().header(), expected);
        // The beginning alone gives the same headers, if it has them all and the packet ends
        // exactly at the frame's end.
        let held = cut.index(out.len());
        let start = frame::parse_start(&out[..held], kind, out.len() - held);
        prop_assert_eq!(start.is_ok(), held >= frame.payload_at);
        if let Ok(start) = start {
            let header = start.segment().unwrap().header();
            prop_assert_eq!((start.key, header), (frame.key, frame.segment().unwrap().header()));
            prop_assert_eq!((start.payload_at, start.end), (frame.payload_at, held));
            prop_assert!(frame::parse_start(&out[..held], kind, out.len() + 1 - held).is_err());
        }
        let is_cut = matches!(offload, Offload::Segments(size) if payload.len() > size.into());
        prop_assert_eq!(emitted.vnet.segments.is_some(), is_cut);
        match ipv4::Packet::new(&out[frame.network_at..]) {
            Ok(packet) => {
                prop_assert_eq!(packet.identification(), identification);
                prop_assert_eq!(packet.dont_fragment(), fields.dont_fragment);
            }
            Err(_) => {
                let packet = ipv6::Packet::new(&out[frame.network_at..]).unwrap();
                prop_assert_eq!(packet.flow_label(), fields.flow_label);
            }
        }
    }

    #[test]
    fn udp_frames(
        link in link(),
        flow in flow(Protocol::Udp),
        payload in payload(),
        offload in offload(),
    ) {
        let header = frame::Header::new(Some(link), flow, frame::Fields::default()).unwrap();
        let mut out = vec![0; HEADERS_BYTES_MAX];
        let emitted = header.emit_udp(&[&payload], PacketFields { ecn: Ecn::NotCapable, identification: 0, offload }, &mut out).unwrap();
        out.truncate(emitted.len);
        out.extend(&payload);
        complete(&mut out, emitted.vnet);
        let frame = frame::parse(&out, LinkType::Ethernet).unwrap();
        prop_assert_eq!(frame.key, flow);
        prop_assert_eq!(frame.payload(), payload.as_slice());
        let datagram = frame.datagram().unwrap();
        prop_assert_eq!(datagram.header().source_port, flow.source.port());
        // An interface must treat only a completed sum of zero specially.
        prop_assert!(frame.checksum_is_right() || datagram.checksum() == 0);
        prop_assert!(offload != Offload::Nothing || datagram.checksum() != 0);
    }

    #[test]
    fn link_headers(link in link()) {
        let mut out = [0; ethernet::HEADER_BYTES_MAX];
        let len = link.emit(&mut out).unwrap();
        prop_assert_eq!(ethernet::Header::parse(&out[..len]), Ok(ethernet::Parsed { header: link, payload: &[] }));
    }

    #[test]
    fn network_headers(flow in flow(Protocol::Tcp), fields in fields(), payload in payload()) {
        let frame = frame::Header::new(None, flow, fields).unwrap();
        let mut out = vec![0; HEADERS_BYTES_MAX];
        let emitted = frame
            .emit_tcp(&tcp::Header::default(), &[&payload], PacketFields { ecn: Ecn::Capable0, identification: 0, offload: Offload::Nothing }, &mut out)
            .unwrap();
        out.truncate(emitted.len);
        out.extend(&payload);
        let mut again = vec![0; 40];
        let (len, at) = match (ipv4::Packet::new(&out), ipv6::Packet::new(&out)) {
            (Ok(packet), _) => (packet.header().emit(out.len() - 20, &mut again).unwrap(), 20),
            (_, Ok(packet)) => (packet.header().emit(out.len() - 40, &mut again).unwrap(), 40),
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(len, at);
        prop_assert_eq!(&again[..len], &out[..len]);
    }

    #[test]
    fn datagram_headers(ports in any::<(u16, u16)>(), payload in payload()) {
        let header = udp::Header { source_port: ports.0, target_port: ports.1 };
        let mut out = vec![0; 8];
        header.emit(payload.len(), &mut out).unwrap();
        out.extend(&payload);
        let datagram = udp::Datagram::new(&out).unwrap();
        prop_assert_eq!(datagram.header(), header);
        prop_assert_eq!(datagram.payload(), payload.as_slice());
    }

    #[test]
    fn arp_messages(macs in (mac(), mac()), addresses in any::<([u8; 4], [u8; 4])>(), asks in any::<bool>()) {
        let message = arp::Message {
            operation: if asks { arp::Operation::Request } else { arp::Operation::Reply },
            source_mac: macs.0,
            source: addresses.0.into(),
            target_mac: macs.1,
            target: addresses.1.into(),
        };
        let mut out = [0; arp::BYTES];
        message.emit(&mut out).unwrap();
        prop_assert_eq!(arp::Message::parse(&out), Ok(message));
    }

    #[test]
    fn offload_headers(kind in 1..0x80_u8, numbers in any::<[u16; 4]>(), has_cwr in any::<bool>()) {
        let [size, start, offset, header_len] = numbers;
        let kind = match kind {
            1 => SegmentKind::TcpV4,
            4 => SegmentKind::TcpV6,
            5 => SegmentKind::Udp,
            other => SegmentKind::Other(other),
        };
        let segments = [None, Some(Segments { kind, size, has_cwr })];
        let checksums = [Checksum::Unknown, Checksum::Valid, Checksum::Partial { start, offset }];
        for (segments, checksum) in segments.iter().flat_map(|s| checksums.map(|c| (*s, c))) {
            let header = vnet::Header { checksum, segments, header_len };
            prop_assert_eq!(vnet::Header::parse(&header.to_bytes()), Ok(header));
        }
    }

    #[test]
    fn sums_agree(bytes in vec(any::<u8>(), 0..600), cuts in vec(any::<prop::sample::Index>(), 0..5)) {
        // By the book: RFC 1071 section 4.1.
        let mut plain: u32 = 0;
        for pair in bytes.chunks(2) {
            plain += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        }
        while plain > 0xffff {
            plain = (plain & 0xffff) + (plain >> 16);
        }
        prop_assert_eq!(u32::from(checksum::sum(&bytes).value()), plain);
        // In parts of any length.
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut sum = checksum::Sum::new();
        for pair in cuts.windows(2) {
            sum.add(&bytes[pair[0]..pair[1]]);
        }
        prop_assert_eq!(sum.value(), checksum::sum(&bytes).value());
    }

    #[test]
    fn an_incremental_sum_is_the_full_one(
        mut bytes in vec(any::<u8>(), 20..100),
        at in any::<prop::sample::Index>(),
        new in any::<[u8; 4]>(),
    ) {
        // A header is never all zeros.
        bytes[0] |= 0x40;
        let before = checksum::sum(&bytes).finish();
        let at = 2 + at.index((bytes.len() - 5) / 2) * 2;
        let old = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        bytes[at..at + 4].copy_from_slice(&new);
        let after = checksum::sum(&bytes).finish();
        let word = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
        let first = checksum::update(before, word(&old), word(&new));
        prop_assert_eq!(checksum::update(first, word(&old[2..]), word(&new[2..])), after);
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in vec(any::<u8>(), 0..200)) {
        fuzz::frame(&bytes);
        fuzz::headers(&bytes);
        fuzz::options(&bytes);
    }

    #[test]
    fn options_are_never_longer_than_said(options in options()) {
        let mut out = [0; 40];
        prop_assert_eq!(options.emit(&mut out), Ok(options.len()));
        prop_assert_eq!(Options::parse(&out[..options.len()]), options);
    }
}
