//! Entry points for fuzzing: arbitrary bytes as frames from an interface.
//!
//! The invariants: no panic; parsed lengths agree with the bytes; headers that are read, written
//! and read again are equal. Debug and fuzzing builds only; not a part of the interface of this
//! crate. Used by `tests/fuzz_run.rs` (deterministic, in every test run) and
//! `fuzz/fuzz_targets/wire_*.rs`.

use crate::frame::{self, LinkType, Transport};
use crate::tcp::{OPTIONS_BYTES_MAX, OptionIter, Options};
use crate::{arp, ethernet, icmp, ipv4, ipv6, tcp, vnet};

/// Reads a frame. The first byte chooses the link, the rest is a frame or the beginning of a longer
/// one.
pub fn frame(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let link = if choice & 1 == 0 { LinkType::Ethernet } else { LinkType::Raw };
    if let Ok(start) = frame::parse_start(bytes, link, usize::from(choice) << 8) {
        assert_eq!(bytes.get(start.payload_range()), Some(start.payload()));
    }
    let Ok(frame) = frame::parse(bytes, link) else { return };
    assert!(frame.network_at < frame.transport_at && frame.transport_at < frame.payload_at);
    assert_eq!(bytes.get(frame.payload_range()), Some(frame.payload()));
    assert_eq!(frame.key.source.is_ipv4(), frame.key.target.is_ipv4());
    assert_eq!(frame.key.reversed().reversed(), frame.key);
    frame.checksum_is_right();
    if let Transport::Tcp(segment) = frame.transport {
        same_again(&segment.header());
    }
}

/// Reads all other formats.
pub fn headers(bytes: &[u8]) {
    let unspecified = core::net::Ipv6Addr::UNSPECIFIED;
    let _ = arp::Message::parse(bytes);
    let _ = icmp::Error::parse_v4(bytes);
    let _ = icmp::Error::parse_v6(bytes, unspecified, unspecified);
    let _ = ipv4::Packet::new(bytes).map(|packet| packet.header());
    let _ = ipv6::Packet::new(bytes).map(|packet| packet.upper());
    if let Ok(frame) = ethernet::Header::parse(bytes) {
        assert_eq!(frame.header.len() + frame.payload.len(), bytes.len());
    }
    if let Ok(header) = vnet::Header::parse(bytes) {
        assert_eq!(vnet::Header::parse(&header.to_bytes()), Ok(header));
    }
}

/// Reads an option area.
pub fn options(bytes: &[u8]) {
    // Each step takes at least one byte.
    assert!(OptionIter::new(bytes).count() <= bytes.len());
    same_again(&tcp::Header { options: Options::parse(bytes), ..tcp::Header::default() });
}

fn same_again(header: &tcp::Header) {
    let mut out = [0; tcp::HEADER_BYTES_MAX];
    match header.emit(&mut out) {
        Ok(len) => {
            let segment = tcp::Segment::new(&out).expect("a header that was emitted is whole");
            assert_eq!((segment.header(), segment.header_len()), (*header, len));
        }
        Err(_) => assert!(header.options.len() > OPTIONS_BYTES_MAX),
    }
}
