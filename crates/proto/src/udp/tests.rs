//! Tests of UDP sockets: queue, truncation, segmentation, detours through the kernel, moves.

use super::*;
use crate::record::{IpOptions, Kind, SessionRecord, UdpOptions, UdpRecord};
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use proptest::prelude::*;

const ENVELOPE: Envelope = Envelope {
    target: core::net::IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)),
    traffic_class: 0xb9,
    hop_limit: 3,
    time_ns: 5,
};

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn record(peer: Option<&str>, change: impl Fn(&mut UdpOptions)) -> SessionRecord {
    let mut options = UdpOptions::default();
    change(&mut options);
    SessionRecord {
        local: address("192.0.2.1:4000"),
        remote: peer.map(address),
        ip: IpOptions::default(),
        kind: Kind::Udp(UdpRecord { options, interface: 7, receive_queue: Vec::new() }),
    }
}

fn socket(peer: Option<&str>, change: impl Fn(&mut UdpOptions)) -> Socket {
    Socket::import(&record(peer, change), &Limits::default()).expect("imports")
}

fn read(socket: &mut Socket, size: usize) -> Option<(Received, Vec<u8>)> {
    let mut bytes = vec![0; size];
    let (front, back) = bytes.split_at_mut(size / 3);
    let received = socket.recv(&mut [front, back])?;
    bytes.truncate(received.copied);
    Some((received, bytes))
}

#[test]
fn datagrams_are_read_one_by_one_with_their_sources() {
    let mut socket = socket(None, |_| {});
    let (one, two) = (address("192.0.2.2:1"), address("192.0.2.3:2"));
    assert_eq!(socket.on_datagram(one, &ENVELOPE, b"first", 0), Disposition::Queued);
    assert_eq!(socket.on_datagram(two, &ENVELOPE, b"", 0), Disposition::Queued);
    assert!(socket.is_readable());
    assert_eq!(socket.siocinq(), 5);
    let (received, bytes) = read(&mut socket, 100).expect("one waits");
    assert_eq!((received.source, &bytes[..]), (one, &b"first"[..]));
    let (received, bytes) = read(&mut socket, 100).expect("an empty one waits");
    assert_eq!((received.source, received.len, bytes.len()), (two, 0, 0));
    assert!(read(&mut socket, 100).is_none() && !socket.is_readable());
}

#[test]
fn what_does_not_fit_is_told_and_gone() {
    let mut socket = socket(None, |_| {});
    socket.on_datagram(address("192.0.2.2:1"), &ENVELOPE, b"0123456789", 0);
    socket.on_datagram(address("192.0.2.2:1"), &ENVELOPE, b"next", 0);
    let peeked = socket.peek(&mut [&mut [0; 2]]).expect("one waits");
    assert_eq!((peeked.copied, peeked.len), (2, 10));
    let (received, bytes) = read(&mut socket, 4).expect("one waits");
    assert_eq!((received.len, &bytes[..]), (10, &b"0123"[..]));
    let (received, bytes) = read(&mut socket, 4).expect("one waits");
    assert_eq!((received.copied, received.len, &bytes[..]), (4, 4, &b"next"[..]));
}

#[test]
fn a_connected_socket_takes_its_peers_only() {
    let mut socket = socket(Some("192.0.2.2:1"), |_| {});
    assert_eq!(
        socket.on_datagram(address("192.0.2.2:2"), &ENVELOPE, b"x", 0),
        Disposition::FromOther
    );
    assert_eq!(
        socket.on_datagram(address("192.0.2.3:1"), &ENVELOPE, b"x", 0),
        Disposition::FromOther
    );
    assert_eq!(socket.on_datagram(address("192.0.2.2:1"), &ENVELOPE, b"x", 0), Disposition::Queued);
    assert_eq!(socket.tally().from_others, 2);
    socket.connect(socket.local(), None);
    assert_eq!(socket.on_datagram(address("192.0.2.3:1"), &ENVELOPE, b"x", 0), Disposition::Queued);
}

#[test]
fn merged_datagrams_stay_so_for_who_takes_them() {
    let mut merged = socket(None, |options| options.gro = true);
    merged.on_datagram(address("192.0.2.2:1"), &ENVELOPE, b"aabbc", 2);
    let (received, bytes) = read(&mut merged, 100).expect("one waits");
    assert_eq!((received.segment_size, &bytes[..]), (2, &b"aabbc"[..]));
    let mut single = socket(None, |_| {});
    single.on_datagram(address("192.0.2.2:1"), &ENVELOPE, b"aabbc", 2);
    let parts: Vec<_> = core::iter::from_fn(|| read(&mut single, 9).map(|(_, b)| b)).collect();
    assert_eq!(parts, [b"aa".to_vec(), b"bb".to_vec(), b"c".to_vec()]);
}

#[test]
fn what_came_with_a_datagram_stays_with_it() {
    let mut here = socket(None, |_| {});
    here.on_datagram(address("192.0.2.2:1"), &ENVELOPE, b"aabbc", 2);
    assert_eq!((here.tally().queued, here.tally().queued_bytes), (3, 5));
    let (received, _) = read(&mut here, 9).expect("one waits");
    assert_eq!(received.envelope, ENVELOPE);
    // A record has no values of a datagram's arrival (`Envelope::time_ns`).
    let moved = here.export().expect("one home");
    let mut there = Socket::import(&moved, &Limits::default()).expect("imports");
    assert_eq!(there.interface(), 7);
    let (received, bytes) = read(&mut there, 9).expect("another waits");
    assert_eq!(received.envelope, Envelope { time_ns: 0, ..ENVELOPE });
    assert_eq!(bytes, b"bb");
}

#[test]
fn merged_datagrams_are_counted_one_by_one() {
    let mut merged = socket(None, |options| options.gro = true);
    merged.on_datagram(address("192.0.2.2:1"), &ENVELOPE, b"aabbc", 2);
    assert_eq!((merged.tally().queued, merged.tally().queued_bytes), (3, 5));
}

#[test]
fn a_full_buffer_refuses_and_counts() {
    let mut socket = socket(None, |options| options.rcvbuf = 4_608);
    let source = address("192.0.2.2:1");
    while socket.on_datagram(source, &ENVELOPE, &[7; 1_000], 0) == Disposition::Queued {}
    assert_eq!((socket.tally().queued, socket.tally().full), (3, 1));
    read(&mut socket, 1_000);
    assert_eq!(socket.on_datagram(source, &ENVELOPE, &[7; 1_000], 0), Disposition::Queued);
    let mut small =
        Socket::import(&record(None, |_| {}), &Limits { datagrams_max: 2, receive_bytes_max: 0 })
            .expect("imports");
    assert_eq!(small.on_datagram(source, &ENVELOPE, &vec![7; 65_507], 0), Disposition::Queued);
    assert_eq!(small.on_datagram(source, &ENVELOPE, &[7; 1_000], 0), Disposition::Full);
}

#[test]
fn what_the_fast_path_does_not_do_goes_through_the_kernel() {
    let mut socket = socket(None, |_| {});
    let target = Some(address("192.0.2.2:53"));
    assert_eq!(socket.prepare(None, 1, None), Err(KernelPath::NoTarget));
    assert_eq!(socket.prepare(Some(address("[2001:db8::1]:53")), 1, None), Err(KernelPath::Family));
    assert_eq!(socket.prepare(Some(address("192.0.2.2:0")), 1, None), Err(KernelPath::NoPort));
    assert_eq!(socket.prepare(Some(address("224.0.0.1:53")), 1, None), Err(KernelPath::NotUnicast));
    assert_eq!(socket.prepare(Some(address("0.0.0.0:53")), 1, None), Err(KernelPath::NotUnicast));
    assert_eq!(socket.prepare(target, 1_473, None), Err(KernelPath::TooLong));
    assert_eq!(socket.prepare(target, 1_000, Some(7)), Err(KernelPath::TooManySegments));
    let outgoing = socket.prepare(target, 1_472, None).expect("it fits");
    assert_eq!((outgoing.segment_size, outgoing.checksum), (0, true));
    assert_eq!((outgoing.header.source_port, outgoing.header.target_port), (4_000, 53));
    socket.set_path_mtu(576);
    assert_eq!(socket.prepare(target, 1_472, None), Err(KernelPath::TooLong));
}

#[test]
fn one_send_makes_many_datagrams() {
    let mut socket = socket(Some("192.0.2.2:53"), |options| options.gso_size = 1_000);
    assert_eq!(socket.prepare(None, 5_500, None).map(|o| o.segment_size), Ok(1_000));
    assert_eq!(socket.prepare(None, 1_000, None).map(|o| o.segment_size), Ok(0));
    assert_eq!(socket.prepare(None, 1_000, Some(100)).map(|o| o.segment_size), Ok(100));
    assert_eq!(socket.tally().sent, 6 + 1 + 10);
    assert_eq!(socket.prepare(None, 5_500, Some(0)), Err(KernelPath::TooLong));
}

proptest! {
    #[test]
    fn a_queue_is_a_queue_and_moves(
        steps in prop::collection::vec((any::<bool>(), 0usize..3_000, any::<u16>(), 0u8..20), 1..200),
    ) {
        let limits = Limits { receive_bytes_max: 1 << 16, datagrams_max: 16 };
        let mut socket =
            Socket::import(&record(None, |options| options.gro = true), &limits).expect("imports");
        let mut model = alloc::collections::VecDeque::new();
        for (write, length, port, chance) in steps {
            if write {
                let payload: Vec<u8> = (0..length).map(|place| (place ^ usize::from(port)) as u8).collect();
                let source = SocketAddr::new(address("192.0.2.7:0").ip(), port);
                if socket.on_datagram(source, &ENVELOPE, &payload, 0) == Disposition::Queued {
                    model.push_back((source, payload));
                }
            } else {
                let got = read(&mut socket, 4_000).map(|(received, bytes)| (received.source, bytes));
                prop_assert_eq!(got, model.pop_front());
            }
            if chance == 0 {
                let record = socket.export().expect("one home");
                prop_assert!(socket.export().is_none());
                let mut bytes = Vec::new();
                record.encode(&mut bytes);
                let record = SessionRecord::decode(&bytes).expect("decodes");
                socket = Socket::import(&record, &limits).expect("imports");
            }
            prop_assert_eq!(socket.is_readable(), !model.is_empty());
        }
    }
}
