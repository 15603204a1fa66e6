//! Captured frames: each is read, checked, and written again byte by byte as Linux wrote it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::captures::*;
use sojourn_wire::ethernet::{self, EtherType, VlanTag};
use sojourn_wire::frame::{self, Fields, Frame, LinkType, Offload, PacketFields};
use sojourn_wire::icmp::{self, Reason};
use sojourn_wire::tcp::{Flags, Options, SackBlocks, Timestamps};
use sojourn_wire::{Ecn, MacAddress, Malformed, Protocol, SeqNum, arp, ipv4, ipv6, vnet};
use std::net::Ipv4Addr;

fn parsed(bytes: &[u8]) -> Frame<'_> {
    let frame = frame::parse(bytes, LinkType::Ethernet).unwrap();
    assert!(frame.checksum_is_right());
    frame
}

/// Returns headers and payload written from the values of `frame`.
fn written(frame: &Frame<'_>, bytes: &[u8]) -> Vec<u8> {
    let network = &bytes[frame.network_at..];
    let (flow_label, dont_fragment, identification) = match ipv4::Packet::new(network) {
        Ok(packet) => (0, packet.dont_fragment(), packet.identification()),
        Err(_) => (ipv6::Packet::new(network).unwrap().flow_label(), true, 0),
    };
    let dscp = frame.traffic_class.dscp();
    let fields = Fields { dscp, hop_limit: frame.hop_limit, flow_label, dont_fragment };
    let header = frame::Header::new(frame.ethernet, frame.key, fields).unwrap();
    let (payload, ecn) = (&[frame.payload()], frame.traffic_class.ecn());
    let mut out = vec![0xee; bytes.len()];
    let emitted = match frame.segment() {
        Some(segment) => {
            let tcp = segment.header();
            header.emit_tcp(
                &tcp,
                payload,
                PacketFields { ecn, identification, offload: Offload::Nothing },
                &mut out,
            )
        }
        None => header.emit_udp(
            payload,
            PacketFields { ecn, identification, offload: Offload::Nothing },
            &mut out,
        ),
    };
    assert_eq!(emitted.unwrap().len, frame.payload_at);
    out[frame.payload_at..].copy_from_slice(frame.payload());
    out
}

#[test]
fn what_linux_sent_is_written_the_same() {
    for bytes in [SYN, SYN_ACK, DATA, RESET, DATAGRAM, DATA_V6, DATAGRAM_V6] {
        let frame = parsed(bytes);
        assert_eq!(written(&frame, bytes), bytes, "{frame:?}");
    }
}

#[test]
fn a_syn_with_all_its_options() {
    let frame = parsed(SYN);
    assert_eq!(frame.key.protocol, Protocol::Tcp);
    assert_eq!(frame.key.source, "192.0.2.1:49350".parse().unwrap());
    assert_eq!(frame.key.target, "192.0.2.2:7".parse().unwrap());
    assert_eq!(
        (frame.network_at, frame.transport_at, frame.payload_at, frame.end),
        (14, 34, 74, 74)
    );
    let header = frame.segment().unwrap().header();
    assert_eq!(header.seq, SeqNum(0xb85d_98f6));
    assert_eq!((header.flags, header.window), (Flags::SYN, 64240));
    let timestamps = Some(Timestamps { value: 0xc990_52f8, echo: 0 });
    let sack = SackBlocks::NONE;
    let expected =
        Options { mss: Some(1460), window_scale: Some(10), sack_permitted: true, timestamps, sack };
    assert_eq!(header.options, expected);
}

#[test]
fn data_over_ipv4() {
    let frame = parsed(DATA);
    let segment = frame.segment().unwrap();
    assert_eq!(segment.payload(), b"hello");
    assert_eq!(segment.flags(), Flags::ACK | Flags::PSH);
    assert_eq!(segment.ack(), SeqNum(0xa110_a676));
    assert_eq!((segment.header_len(), segment.sequence_len()), (32, 5));
    assert_eq!(frame.payload_range(), 66..71);
    assert_eq!(parsed(RESET).segment().unwrap().flags(), Flags::RST | Flags::ACK);
}

#[test]
fn data_over_ipv6() {
    let frame = parsed(DATA_V6);
    assert_eq!(frame.key.source, "[2001:db8::1]:35306".parse().unwrap());
    assert_eq!(frame.key.target, "[2001:db8::2]:7".parse().unwrap());
    assert_eq!((frame.payload(), frame.hop_limit), (&b"hello"[..], 64));
    assert_eq!(ipv6::Packet::new(&DATA_V6[14..]).unwrap().flow_label(), 0x8c27d);
}

#[test]
fn datagrams() {
    for (bytes, source, target) in [
        (DATAGRAM, "192.0.2.1:39975", "192.0.2.2:9"),
        (DATAGRAM_V6, "[2001:db8::1]:47439", "[2001:db8::2]:9"),
    ] {
        let frame = parsed(bytes);
        assert_eq!(frame.key.protocol, Protocol::Udp);
        assert_eq!(frame.key.source, source.parse().unwrap());
        assert_eq!(frame.key.target, target.parse().unwrap());
        assert_eq!(frame.payload(), b"datagram");
        assert_eq!((frame.traffic_class.dscp(), frame.traffic_class.ecn()), (46, Ecn::NotCapable));
    }
}

#[test]
fn errors_name_the_packet_that_did_not_arrive() {
    let packet = ipv4::Packet::new(&UNREACHABLE_V4[14..]).unwrap();
    let error = icmp::Error::parse_v4(packet.payload()).unwrap();
    assert_eq!(error.reason, Reason::Unreachable { code: 3 });
    assert_eq!(error.flow.source, "192.0.2.1:39975".parse().unwrap());
    assert_eq!(error.flow.target, "192.0.2.2:10".parse().unwrap());
    assert_eq!(error.seq, None);
    let mut out = [0; 100];
    let len = icmp::emit_v4(error.reason, &packet.payload()[8..], &mut out).unwrap();
    assert_eq!(&out[..len], packet.payload());

    let packet = ipv6::Packet::new(&UNREACHABLE_V6[14..]).unwrap();
    let ends = (packet.source(), packet.target());
    let error = icmp::Error::parse_v6(packet.rest(), ends.0, ends.1).unwrap();
    assert_eq!(error.reason, Reason::Unreachable { code: 4 });
    assert_eq!(error.flow.source, "[2001:db8::1]:47439".parse().unwrap());
    let len = icmp::emit_v6(error.reason, &packet.rest()[8..], ends.0, ends.1, &mut out).unwrap();
    assert_eq!(&out[..len], packet.rest());
}

#[test]
fn address_resolution() {
    let ethernet::Parsed { header: link, payload: message } =
        ethernet::Header::parse(ARP_REQUEST).unwrap();
    assert_eq!((link.target, link.ether_type), (MacAddress::BROADCAST, EtherType::ARP));
    let expected = arp::Message {
        operation: arp::Operation::Request,
        source_mac: MacAddress(HOSTS[0]),
        source: Ipv4Addr::new(192, 0, 2, 1),
        target_mac: MacAddress::default(),
        target: Ipv4Addr::new(192, 0, 2, 2),
    };
    assert_eq!(arp::Message::parse(message), Ok(expected));
    let answer = arp::Message {
        operation: arp::Operation::Reply,
        source_mac: MacAddress(HOSTS[1]),
        source: expected.target,
        target_mac: expected.source_mac,
        target: expected.source,
    };
    let mut out = [0; 42];
    let link = ethernet::Header::new(answer.source_mac, answer.target_mac, EtherType::ARP);
    let at = link.emit(&mut out).unwrap();
    answer.emit(&mut out[at..]).unwrap();
    assert_eq!(out, ARP_REPLY);
}

#[test]
fn what_is_sound_but_has_no_flow() {
    let foreign = |bytes: &[u8], why| {
        assert_eq!(frame::parse(bytes, LinkType::Ethernet), Err(why));
        assert!(why.is_foreign());
    };
    foreign(ARP_REPLY, Malformed::NotInternet);
    foreign(UNREACHABLE_V4, Malformed::NotTransport);
    foreign(UNREACHABLE_V6, Malformed::NotTransport);
    foreign(LISTENER_REPORT, Malformed::NotTransport);
    let upper = ipv6::Packet::new(&LISTENER_REPORT[14..]).unwrap().upper().unwrap();
    assert_eq!((upper.protocol, upper.extensions_len), (58, 8));
}

#[test]
fn without_a_link_header_the_same_is_seen() {
    for bytes in [DATA, DATA_V6, DATAGRAM] {
        let (with, without) = (parsed(bytes), frame::parse(&bytes[14..], LinkType::Raw).unwrap());
        assert_eq!((with.key, with.transport), (without.key, without.transport));
        assert_eq!((with.end, without.ethernet), (without.end + 14, None));
    }
    assert_eq!(frame::parse(&[], LinkType::Raw), Err(Malformed::Short));
    assert_eq!(frame::parse(&[0x50; 60], LinkType::Raw), Err(Malformed::Version));
}

#[test]
fn tags_are_read_and_written() {
    let ethernet::Parsed { header: mut link, payload: packet } =
        ethernet::Header::parse(DATA).unwrap();
    let service = VlanTag { ether_type: EtherType::SERVICE_VLAN, control: 0x2064 };
    for tags in [[Some(VlanTag::new(7)), None], [Some(service), Some(VlanTag::new(4095))]] {
        link.tags = tags;
        let mut bytes = vec![0; link.len()];
        link.emit(&mut bytes).unwrap();
        bytes.extend(packet);
        let frame = parsed(&bytes);
        assert_eq!(frame.ethernet, Some(link));
        assert_eq!(frame.payload(), b"hello");
        assert_eq!(written(&frame, &bytes), bytes);
    }
    assert_eq!((service.id(), service.priority()), (100, 1));
    // A tag cut in two.
    link.tags = [Some(VlanTag::new(7)), None];
    let mut bytes = [0; 18];
    link.emit(&mut bytes).unwrap();
    assert_eq!(ethernet::Header::parse(&bytes[..17]), Err(Malformed::Short));
}

#[test]
fn offload_headers_have_the_kernel_s_layout() {
    // struct virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, in the
    // machine's byte order.
    let word = u16::to_ne_bytes;
    let bytes = [&[1, 0x84][..], &word(86), &word(1428), &word(54), &word(16)].concat();
    let header = vnet::Header {
        checksum: vnet::Checksum::Partial { start: 54, offset: 16 },
        segments: Some(vnet::Segments {
            kind: vnet::SegmentKind::TcpV6,
            size: 1428,
            has_cwr: true,
        }),
        header_len: 86,
    };
    assert_eq!(header.to_bytes()[..], bytes);
    assert_eq!(vnet::Header::parse(&bytes), Ok(header));
    assert!(!header.must_verify() && vnet::Header::NONE.must_verify());
    assert_eq!(vnet::Header::parse(&[2; 10]).unwrap().checksum, vnet::Checksum::Valid);
    for (number, kind) in [(1, vnet::SegmentKind::TcpV4), (5, vnet::SegmentKind::Udp)] {
        let segments = Some(vnet::Segments { kind, size: 0, has_cwr: false });
        assert_eq!(vnet::Header { segments, ..vnet::Header::NONE }.to_bytes()[1], number);
    }
    assert_eq!(vnet::Header::parse(&bytes[..9]), Err(Malformed::Short));
}
