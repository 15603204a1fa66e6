//! A comparison with another reader and writer of packets (`etherparse`): each reads the other's
//! packets, and both read the same from random bytes if both accept them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::values::*;
use etherparse::{
    InternetSlice, LinkSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice,
};
use proptest::collection::vec;
use proptest::prelude::*;
use sojourn_wire::frame::{self, Frame, HEADERS_BYTES_MAX, LinkType, Offload, PacketFields};
use sojourn_wire::tcp::{self, Flags};
use sojourn_wire::{Ecn, FlowKey, Protocol};
use std::net::IpAddr;

/// Writes a frame with these contents by this crate.
fn ours(
    link: sojourn_wire::ethernet::Header,
    flow: FlowKey,
    tcp: &tcp::Header,
    payload: &[u8],
) -> Vec<u8> {
    let header = frame::Header::new(Some(link), flow, frame::Fields::default()).unwrap();
    let mut out = vec![0; HEADERS_BYTES_MAX];
    let (parts, ecn, offload) = ([payload], Ecn::Congestion, Offload::Nothing);
    let emitted = match flow.protocol {
        Protocol::Tcp => {
            header.emit_tcp(tcp, &parts, PacketFields { ecn, identification: 9, offload }, &mut out)
        }
        Protocol::Udp => {
            header.emit_udp(&parts, PacketFields { ecn, identification: 9, offload }, &mut out)
        }
    };
    out.truncate(emitted.unwrap().len);
    out.extend(payload);
    out
}

/// Compares the readings of both; returns true if the other one found a transport.
fn agree(frame: &Frame<'_>, other: &SlicedPacket<'_>) -> Result<bool, TestCaseError> {
    if let (Some(LinkSlice::Ethernet2(link)), Some(ethernet)) = (&other.link, frame.ethernet) {
        prop_assert_eq!(link.source(), ethernet.source.0);
        prop_assert_eq!(link.destination(), ethernet.target.0);
    }
    let (source, target, class, hops) = match &other.net {
        Some(InternetSlice::Ipv4(v4)) => {
            let header = v4.header();
            let class = header.dcp().value() << 2 | header.ecn().value();
            (header.source_addr().into(), header.destination_addr().into(), class, header.ttl())
        }
        Some(InternetSlice::Ipv6(v6)) => {
            let header = v6.header();
            let (source, target) = (header.source_addr(), header.destination_addr());
            (IpAddr::V6(source), target.into(), header.traffic_class(), header.hop_limit())
        }
        _ => return Ok(false),
    };
    prop_assert_eq!((frame.key.source.ip(), frame.key.target.ip()), (source, target));
    prop_assert_eq!((frame.traffic_class.0, frame.hop_limit), (class, hops));
    match (&other.transport, frame.segment(), frame.datagram()) {
        (Some(TransportSlice::Tcp(theirs)), Some(segment), _) => {
            prop_assert_eq!(theirs.source_port(), segment.source_port());
            prop_assert_eq!(theirs.destination_port(), segment.target_port());
            prop_assert_eq!(theirs.sequence_number(), segment.seq().0);
            prop_assert_eq!(theirs.acknowledgment_number(), segment.ack().0);
            prop_assert_eq!(theirs.window_size(), segment.window());
            prop_assert_eq!(theirs.urgent_pointer(), segment.urgent());
            prop_assert_eq!(theirs.checksum(), segment.checksum());
            prop_assert_eq!(theirs.payload(), segment.payload());
            let flags = [
                (theirs.fin(), Flags::FIN),
                (theirs.syn(), Flags::SYN),
                (theirs.rst(), Flags::RST),
                (theirs.psh(), Flags::PSH),
                (theirs.ack(), Flags::ACK),
                (theirs.urg(), Flags::URG),
                (theirs.ece(), Flags::ECE),
                (theirs.cwr(), Flags::CWR),
            ];
            for (is_set, flag) in flags {
                prop_assert_eq!(is_set, segment.flags().contains(flag));
            }
        }
        (Some(TransportSlice::Udp(theirs)), _, Some(datagram)) => {
            prop_assert_eq!(theirs.source_port(), datagram.source_port());
            prop_assert_eq!(theirs.destination_port(), datagram.target_port());
            prop_assert_eq!(theirs.checksum(), datagram.checksum());
            prop_assert_eq!(theirs.payload(), datagram.payload());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Compares checksum and options of a segment with the other reader's.
fn check_tcp(other: &SlicedPacket<'_>, header: &tcp::Header) -> Result<(), TestCaseError> {
    let Some(TransportSlice::Tcp(theirs)) = &other.transport else { panic!("{other:?}") };
    let sum = match &other.net {
        Some(InternetSlice::Ipv4(v4)) => {
            prop_assert_eq!(
                v4.header().to_header().calc_header_checksum(),
                v4.header().header_checksum()
            );
            theirs.calc_checksum_ipv4(v4.header().source(), v4.header().destination())
        }
        Some(InternetSlice::Ipv6(v6)) => {
            theirs.calc_checksum_ipv6(v6.header().source(), v6.header().destination())
        }
        other => panic!("{other:?}"),
    };
    prop_assert_eq!(sum.unwrap(), theirs.checksum());
    let mut seen = tcp::Options::NONE;
    for option in theirs.options_iterator() {
        match option.unwrap() {
            TcpOptionElement::Noop => {}
            TcpOptionElement::MaximumSegmentSize(mss) => seen.mss = Some(mss),
            TcpOptionElement::WindowScale(shift) => seen.window_scale = Some(shift),
            TcpOptionElement::SelectiveAcknowledgementPermitted => seen.sack_permitted = true,
            TcpOptionElement::SelectiveAcknowledgement(first, others) => {
                for (start, end) in [first].into_iter().chain(others.into_iter().flatten()) {
                    seen.sack.push(tcp::SackBlock { start: start.into(), end: end.into() });
                }
            }
            TcpOptionElement::Timestamp(value, echo) => {
                seen.timestamps = Some(tcp::Timestamps { value, echo });
            }
        }
    }
    prop_assert_eq!(seen, header.options);
    Ok(())
}

proptest! {
    #[test]
    fn it_reads_our_segments(link in link(), flow in flow(Protocol::Tcp), tcp in header(), payload in payload()) {
        let bytes = ours(link, flow, &tcp, &payload);
        let other = SlicedPacket::from_ethernet(&bytes).unwrap();
        let frame = frame::parse(&bytes, LinkType::Ethernet).unwrap();
        prop_assert!(agree(&frame, &other)?);
        check_tcp(&other, &tcp)?;
        let ids: Vec<u16> = other.vlan_ids().iter().map(|id| id.value()).collect();
        let expected: Vec<u16> = link.tags.iter().flatten().map(|tag| tag.id()).collect();
        prop_assert_eq!(ids, expected);
    }

    #[test]
    fn it_reads_our_datagrams(link in link(), flow in flow(Protocol::Udp), payload in payload()) {
        let bytes = ours(link, flow, &tcp::Header::default(), &payload);
        let other = SlicedPacket::from_ethernet(&bytes).unwrap();
        prop_assert!(agree(&frame::parse(&bytes, LinkType::Ethernet).unwrap(), &other)?);
        let Some(TransportSlice::Udp(theirs)) = &other.transport else { panic!("{other:?}") };
        let sum = match (flow.source.ip(), flow.target.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                theirs.to_header().calc_checksum_ipv4_raw(a.octets(), b.octets(), &payload)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                theirs.to_header().calc_checksum_ipv6_raw(a.octets(), b.octets(), &payload)
            }
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(sum.unwrap(), theirs.checksum());
    }

    #[test]
    fn we_read_its_packets(flow in flow(Protocol::Tcp), numbers in any::<(u32, u16, u16)>(), payload in payload()) {
        let builder = || {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(7.try_into().unwrap());
            match (flow.source.ip(), flow.target.ip()) {
                (IpAddr::V4(a), IpAddr::V4(b)) => builder.ipv4(a.octets(), b.octets(), 3),
                (IpAddr::V6(a), IpAddr::V6(b)) => builder.ipv6(a.octets(), b.octets(), 3),
                other => panic!("{other:?}"),
            }
        };
        let (seq, source_port, target_port) = numbers;
        let mut bytes = Vec::new();
        let segment = builder().tcp(source_port, target_port, seq, 99).psh();
        segment.write(&mut bytes, &payload).unwrap();
        let frame = frame::parse(&bytes, LinkType::Ethernet).unwrap();
        prop_assert!(frame.checksum_is_right());
        prop_assert!(agree(&frame, &SlicedPacket::from_ethernet(&bytes).unwrap())?);
        bytes.clear();
        builder().udp(source_port, target_port).write(&mut bytes, &payload).unwrap();
        let frame = frame::parse(&bytes, LinkType::Ethernet).unwrap();
        prop_assert!(frame.checksum_is_right());
        prop_assert!(agree(&frame, &SlicedPacket::from_ethernet(&bytes).unwrap())?);
    }

    #[test]
    fn both_see_the_same_in_what_is_damaged(
        flow in prop_oneof![flow(Protocol::Tcp), flow(Protocol::Udp)],
        tcp in header(),
        payload in vec(any::<u8>(), 0..60),
        damage in vec(any::<(prop::sample::Index, u8)>(), 0..3),
    ) {
        let link = sojourn_wire::ethernet::Header {
            target: Default::default(),
            source: Default::default(),
            tags: [None, None],
            ether_type: sojourn_wire::ethernet::EtherType::IPV4,
        };
        let mut bytes = ours(link, flow, &tcp, &payload);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let (Ok(frame), Ok(other)) =
            (frame::parse(&bytes, LinkType::Ethernet), SlicedPacket::from_ethernet(&bytes))
        {
            prop_assert!(agree(&frame, &other)?);
        }
    }
}
