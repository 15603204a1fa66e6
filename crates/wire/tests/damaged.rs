//! Damaged frames: each is refused with its reason, and unusual but valid ones are accepted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::captures::*;
use sojourn_wire::frame::{self, LinkType};
use sojourn_wire::icmp::{self, Reason};
use sojourn_wire::{Malformed, arp, checksum, ipv4};

/// Returns `bytes` with some of them changed, and the IPv4 header's checksum corrected.
fn changed(bytes: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, byte) in changes {
        bytes[*at] = *byte;
    }
    if bytes[12..14] == [8, 0] {
        let end = 14 + usize::from(bytes[14] & 15) * 4;
        bytes[24..26].fill(0);
        let sum = checksum::sum(&bytes[14..end.max(34)]).finish();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

fn refused(bytes: &[u8], changes: &[(usize, u8)]) -> Malformed {
    frame::parse(&changed(bytes, changes), LinkType::Ethernet).unwrap_err()
}

/// Returns `packet` (IPv6) with `headers` between the fixed header and the rest.
fn extended(packet: &[u8], next: u8, headers: &[u8]) -> Vec<u8> {
    let mut bytes = packet[..54].to_vec();
    bytes[20] = next;
    let len = (packet.len() - 54 + headers.len()) as u16;
    bytes[18..20].copy_from_slice(&len.to_be_bytes());
    bytes.extend(headers);
    bytes.extend(&packet[54..]);
    bytes
}

#[test]
fn every_cut_is_short() {
    for whole in [SYN, DATA, DATAGRAM, DATA_V6, DATAGRAM_V6] {
        for len in 0..whole.len() {
            assert_eq!(
                frame::parse(&whole[..len], LinkType::Ethernet),
                Err(Malformed::Short),
                "{len} bytes of {whole:x?}"
            );
        }
    }
}

#[test]
fn padding_is_cut_off() {
    for whole in [DATA, DATAGRAM, DATA_V6] {
        let mut padded = whole.to_vec();
        padded.resize(whole.len() + 20, 0xff);
        let (plain, padded) = (
            frame::parse(whole, LinkType::Ethernet).unwrap(),
            frame::parse(&padded, LinkType::Ethernet).unwrap(),
        );
        assert_eq!((plain.payload(), plain.end), (padded.payload(), padded.end));
        assert!(padded.checksum_is_right());
    }
}

#[test]
fn one_wrong_bit_is_seen() {
    for whole in [DATA, DATAGRAM] {
        for bit in 14 * 8..whole.len() * 8 {
            let mut bytes = whole.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let is_seen = frame::parse(&bytes, LinkType::Ethernet)
                .map_or(true, |frame| !frame.checksum_is_right());
            assert!(is_seen, "bit {bit}");
        }
    }
}

#[test]
fn lengths_and_versions_that_cannot_be() {
    assert_eq!(refused(DATA, &[(14, 0x44)]), Malformed::Length);
    assert_eq!(refused(DATA, &[(14, 0x65)]), Malformed::Version);
    assert_eq!(refused(DATA, &[(17, 19)]), Malformed::Length);
    assert_eq!(refused(DATA, &[(46, 0x40)]), Malformed::Length);
    assert_eq!(refused(DATA, &[(46, 0xf0)]), Malformed::Short);
    assert_eq!(refused(DATAGRAM, &[(39, 7)]), Malformed::Length);
    assert_eq!(refused(DATAGRAM, &[(39, 17)]), Malformed::Short);
    assert_eq!(refused(DATA_V6, &[(14, 0x45)]), Malformed::Version);
    let mut bytes = DATA.to_vec();
    bytes[24] ^= 1;
    assert_eq!(frame::parse(&bytes, LinkType::Ethernet), Err(Malformed::Checksum));
    assert!(!Malformed::Checksum.is_foreign());
}

#[test]
fn fragments_are_not_ours() {
    // More to come; the last piece; IPv6's alike.
    assert_eq!(refused(DATA, &[(20, 0x20)]), Malformed::Fragment);
    assert_eq!(refused(DATA, &[(20, 0), (21, 1)]), Malformed::Fragment);
    for fragment in [[0, 1], [0, 8]] {
        let header = [6, 0, fragment[0], fragment[1], 1, 2, 3, 4];
        let bytes = extended(DATA_V6, 44, &header);
        assert_eq!(frame::parse(&bytes, LinkType::Ethernet), Err(Malformed::Fragment));
    }
    // An atomic fragment (RFC 6946) is whole.
    let bytes = extended(DATA_V6, 44, &[6, 0, 0, 6, 1, 2, 3, 4]);
    assert_eq!(frame::parse(&bytes, LinkType::Ethernet).unwrap().payload(), b"hello");
}

#[test]
fn options_before_the_transport_are_passed_over() {
    // IPv4: a router alert (RFC 2113) after the fixed header.
    let mut bytes = DATA[..34].to_vec();
    bytes.extend([0x94, 4, 0, 0]);
    bytes.extend(&DATA[34..]);
    let bytes = changed(&bytes, &[(14, 0x46), (17, DATA[17] + 4)]);
    let frame = frame::parse(&bytes, LinkType::Ethernet).unwrap();
    assert_eq!((frame.payload(), frame.transport_at), (&b"hello"[..], 38));
    assert!(frame.checksum_is_right());
    // IPv6: hop-by-hop, destination options of 16 bytes, an empty routing header.
    let mut headers = vec![60, 0, 1, 4, 0, 0, 0, 0];
    headers.extend([43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    headers.extend([6, 0, 0, 0, 0, 0, 0, 0]);
    let bytes = extended(DATA_V6, 0, &headers);
    let frame = frame::parse(&bytes, LinkType::Ethernet).unwrap();
    assert_eq!((frame.payload(), frame.transport_at), (&b"hello"[..], 86));
    assert!(frame.checksum_is_right());
}

#[test]
fn extension_headers_have_an_end() {
    let many = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
    let parse = |bytes: &[u8]| frame::parse(bytes, LinkType::Ethernet).map(|frame| frame.key);
    assert_eq!(parse(&extended(DATA_V6, 60, &many)), Err(Malformed::NotTransport));
    // Still on its way: one hop left in the routing header.
    let routed = extended(DATA_V6, 43, &[6, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(parse(&routed), Err(Malformed::NotTransport));
    // A header that reaches beyond the packet.
    let long = extended(DATA_V6, 60, &[6, 255, 1, 4, 0, 0, 0, 0]);
    assert_eq!(parse(&long), Err(Malformed::Short));
}

#[test]
fn datagrams_without_checksum() {
    let v4 = changed(DATAGRAM, &[(40, 0), (41, 0)]);
    assert!(frame::parse(&v4, LinkType::Ethernet).unwrap().checksum_is_right());
    let v6 = changed(DATAGRAM_V6, &[(60, 0), (61, 0)]);
    assert!(!frame::parse(&v6, LinkType::Ethernet).unwrap().checksum_is_right());
}

#[test]
fn errors_about_segments() {
    // A router's answer to a segment that was too long for it: RFC 1191 section 4.
    let mut out = [0; 600];
    let original = &DATA[14..];
    let len = icmp::emit_v4(Reason::TooBig { mtu: 1400 }, original, &mut out).unwrap();
    let error = icmp::Error::parse_v4(&out[..len]).unwrap();
    assert_eq!(error.reason, Reason::TooBig { mtu: 1400 });
    assert_eq!(error.flow, frame::parse(DATA, LinkType::Ethernet).unwrap().key);
    assert_eq!(error.seq.map(|seq| seq.0), Some(0xb85d_98f7));
    // Eight bytes of the transport header must do (RFC 792).
    let len = icmp::emit_v4(Reason::TimeExceeded { code: 0 }, &original[..28], &mut out).unwrap();
    assert_eq!(icmp::Error::parse_v4(&out[..len]).unwrap().flow, error.flow);
    let len = icmp::emit_v4(Reason::TimeExceeded { code: 0 }, &original[..27], &mut out).unwrap();
    assert_eq!(icmp::Error::parse_v4(&out[..len]), Err(Malformed::Short));
    out[1] ^= 1;
    assert_eq!(icmp::Error::parse_v4(&out[..len]), Err(Malformed::Checksum));
    // Long packets are quoted in part.
    let long = vec![0x45; 2000];
    let len = icmp::emit_v4(Reason::ParameterProblem { code: 0 }, &long, &mut out).unwrap();
    assert_eq!(len, 576 - ipv4::HEADER_BYTES);
    assert!(icmp::emit_v4(Reason::ParameterProblem { code: 0 }, &long, &mut out[..100]).is_err());
}

#[test]
fn errors_about_ipv6_segments() {
    let ends = ("2001:db8::9".parse().unwrap(), "2001:db8::1".parse().unwrap());
    let mut out = [0; 1300];
    let original = extended(DATA_V6, 60, &[6, 0, 1, 4, 0, 0, 0, 0]);
    let reason = Reason::TooBig { mtu: 1280 };
    let len = icmp::emit_v6(reason, &original[14..], ends.0, ends.1, &mut out).unwrap();
    let error = icmp::Error::parse_v6(&out[..len], ends.0, ends.1).unwrap();
    assert_eq!(error.reason, reason);
    assert_eq!(error.flow, frame::parse(DATA_V6, LinkType::Ethernet).unwrap().key);
    assert_eq!(error.seq.map(|seq| seq.0), Some(0xcd67_0e6f));
    // A later fragment has no ports.
    let piece = extended(DATA_V6, 44, &[6, 0, 0, 8, 0, 0, 0, 0]);
    let len = icmp::emit_v6(reason, &piece[14..], ends.0, ends.1, &mut out).unwrap();
    assert_eq!(icmp::Error::parse_v6(&out[..len], ends.0, ends.1), Err(Malformed::Fragment));
    // For another receiver the sum is another.
    assert_eq!(icmp::Error::parse_v6(&out[..len], ends.0, ends.0), Err(Malformed::Checksum));
}

#[test]
fn every_reason_has_its_numbers() {
    // Types and codes as in RFC 792 (IPv4) and RFC 4443 (IPv6).
    let ends = ("2001:db8::9".parse().unwrap(), "2001:db8::1".parse().unwrap());
    let reasons = [
        (Reason::Unreachable { code: 1 }, [3, 1], [1, 1]),
        (Reason::TooBig { mtu: 1300 }, [3, 4], [2, 0]),
        (Reason::TimeExceeded { code: 0 }, [11, 0], [3, 0]),
        (Reason::ParameterProblem { code: 1 }, [12, 1], [4, 1]),
    ];
    let mut out = [0; 600];
    for (reason, v4, v6) in reasons {
        let len = icmp::emit_v4(reason, &DATAGRAM[14..], &mut out).unwrap();
        assert_eq!(out[..2], v4);
        assert_eq!(icmp::Error::parse_v4(&out[..len]).unwrap().reason, reason);
        let len = icmp::emit_v6(reason, &DATAGRAM_V6[14..], ends.0, ends.1, &mut out).unwrap();
        assert_eq!(out[..2], v6);
        assert_eq!(icmp::Error::parse_v6(&out[..len], ends.0, ends.1).unwrap().reason, reason);
    }
}

#[test]
fn other_address_kinds_are_not_resolved_here() {
    for at in 14..22 {
        let mut bytes = ARP_REPLY.to_vec();
        bytes[at] ^= 0x40;
        assert_eq!(arp::Message::parse(&bytes[14..]), Err(Malformed::NotInternet), "byte {at}");
    }
    assert_eq!(arp::Message::parse(&ARP_REPLY[15..]), Err(Malformed::Short));
}
