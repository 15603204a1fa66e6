//! Tests of `header`: refusals, and the offload headers. `tests/` checks that its frames can be
//! read back.

use super::*;
use crate::tcp::Flags;
use crate::vnet::Checksum;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

fn flow(protocol: Protocol) -> FlowKey {
    let source = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 1);
    let target = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 2).into(), 2);
    FlowKey { protocol, source, target }
}

fn header(protocol: Protocol) -> Header {
    Header::new(None, flow(protocol), Fields::default()).unwrap()
}

#[test]
fn two_versions_are_no_flow() {
    let target = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 2);
    let mixed = FlowKey { target, ..flow(Protocol::Tcp) };
    assert_eq!(Header::new(None, mixed, Fields::default()).err(), Some(NoRoom));
}

#[test]
fn the_other_protocol_is_refused() {
    let mut out = [0; 80];
    let (ecn, offload) = (Ecn::NotCapable, Offload::Nothing);
    let tcp = tcp::Header::default();
    assert!(
        header(Protocol::Udp)
            .emit_tcp(&tcp, &[], PacketFields { ecn, identification: 0, offload }, &mut out)
            .is_err()
    );
    assert!(
        header(Protocol::Tcp)
            .emit_udp(&[], PacketFields { ecn, identification: 0, offload }, &mut out)
            .is_err()
    );
}

#[test]
fn neither_too_long_nor_too_short_a_buffer() {
    let payload = [0; 65_535];
    let mut out = [0; 80];
    let (ecn, offload) = (Ecn::NotCapable, Offload::Checksum);
    let tcp = tcp::Header::default();
    let header = header(Protocol::Tcp);
    let most = &payload[..65_535 - 40];
    assert_eq!(
        header
            .emit_tcp(&tcp, &[most], PacketFields { ecn, identification: 0, offload }, &mut out)
            .unwrap()
            .len,
        40
    );
    assert!(
        header
            .emit_tcp(
                &tcp,
                &[most, &[0]],
                PacketFields { ecn, identification: 0, offload },
                &mut out
            )
            .is_err()
    );
    assert!(
        header
            .emit_tcp(&tcp, &[], PacketFields { ecn, identification: 0, offload }, &mut out[..39])
            .is_err()
    );
    assert!(
        header
            .emit_tcp(&tcp, &[], PacketFields { ecn, identification: 0, offload }, &mut out[..19])
            .is_err()
    );
}

#[test]
fn what_an_interface_is_asked_for() {
    let payload = [7; 3000];
    let mut out = [0; 80];
    let tcp = tcp::Header { flags: Flags::ACK | Flags::CWR, ..tcp::Header::default() };
    let mut vnet = |len: usize, offload| {
        let payload = &payload[..len];
        let header = header(Protocol::Tcp);
        header
            .emit_tcp(
                &tcp,
                &[payload],
                PacketFields { ecn: Ecn::Capable0, identification: 0, offload },
                &mut out,
            )
            .unwrap()
            .vnet
    };
    assert_eq!(vnet(3000, Offload::Nothing), vnet::Header::NONE);
    let checksum = Checksum::Partial { start: 20, offset: 16 };
    let expected = vnet::Header { checksum, segments: None, header_len: 40 };
    assert_eq!(vnet(3000, Offload::Checksum), expected);
    assert_eq!(vnet(1460, Offload::Segments(1460)), expected);
    let segments = Some(Segments { kind: SegmentKind::TcpV4, size: 1460, has_cwr: true });
    assert_eq!(vnet(1461, Offload::Segments(1460)), vnet::Header { segments, ..expected });
    let udp = header(Protocol::Udp);
    let emitted = udp.emit_udp(
        &[&payload],
        PacketFields { ecn: Ecn::NotCapable, identification: 0, offload: Offload::Segments(1000) },
        &mut out,
    );
    let segments = Some(Segments { kind: SegmentKind::Udp, size: 1000, has_cwr: false });
    let checksum = Checksum::Partial { start: 20, offset: 6 };
    assert_eq!(emitted.unwrap().vnet, vnet::Header { checksum, segments, header_len: 28 });
}

#[test]
fn a_checksum_of_zero_is_sent_as_its_other_form() {
    // RFC 768: the payload is chosen such that the sum is all ones.
    let header = header(Protocol::Udp);
    let mut out = [0; 28];
    header
        .emit_udp(
            &[&[0, 0]],
            PacketFields { ecn: Ecn::NotCapable, identification: 0, offload: Offload::Nothing },
            &mut out,
        )
        .unwrap();
    let missing = [out[26], out[27]];
    header
        .emit_udp(
            &[&missing],
            PacketFields { ecn: Ecn::NotCapable, identification: 0, offload: Offload::Nothing },
            &mut out,
        )
        .unwrap();
    assert_eq!(out[26..], [0xff, 0xff]);
}
