//! Tests of headers, checksums and filters; the kernel runs the filters.
use super::*;
use proptest::prelude::*;
use std::io::{Read as _, Write as _};

/// Makes a packet as the kernel delivers it, with `options` words of options in its header.
fn packet(from: SocketAddrV4, to: SocketAddrV4, data: &[u8], options: usize) -> Vec<u8> {
    let mut bytes = vec![0x45 + options as u8, 0];
    let len = 20 + 4 * options + 8 + data.len();
    bytes.extend((len as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    bytes.extend(from.ip().octets());
    bytes.extend(to.ip().octets());
    bytes.extend(vec![1; 4 * options]);
    bytes.extend(head(from, to, data).unwrap());
    bytes.extend(data);
    bytes
}

fn endpoints() -> impl Strategy<Value = SocketAddrV4> {
    (any::<u32>(), any::<u16>()).prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port))
}

proptest! {
    #[test]
    fn what_is_sent_is_parsed_and_damage_is_seen(
        (from, to) in (endpoints(), endpoints()),
        data in proptest::collection::vec(any::<u8>(), 0..300),
        options in 0_usize..=10,
        (bit, tail) in (any::<proptest::sample::Index>(), 0_usize..20),
    ) {
        let mut bytes = packet(from, to, &data, options);
        let ParsedDatagram { source, payload } = parse(&bytes, to.port()).unwrap();
        prop_assert_eq!((source, &bytes[payload]), (from, &data[..]));
        prop_assert!(parse(&bytes, to.port() ^ 1).is_none());
        prop_assert!(parse(&bytes[..bytes.len() - 1], to.port()).is_none());
        let begin = 20 + 4 * options;
        let at = begin * 8 + bit.index((bytes.len() - begin) * 8);
        bytes[at / 8] ^= 1 << (at % 8);
        let checksum = u16::from_be_bytes([bytes[begin + 6], bytes[begin + 7]]);
        let partial = pseudo(from, to, 8 + data.len()).value();
        // Values that mean "no checksum".
        prop_assume!(checksum != 0 && checksum != partial);
        prop_assert!(parse(&bytes, to.port()).is_none(), "bit {}", at);
        bytes[at / 8] ^= 1 << (at % 8);
        // Bytes behind the packet, as padding of a short frame, are ignored.
        bytes.extend(vec![7; tail]);
        prop_assert!(parse(&bytes, to.port()).is_some());
    }

    #[test]
    fn no_bytes_are_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        port in any::<u16>(),
    ) {
        if let Some(ParsedDatagram { payload, .. }) = parse(&bytes, port) {
            prop_assert!(payload.end <= bytes.len());
        }
    }

    #[test]
    fn the_rule_lets_through_what_is_for_the_port(
        (from, to) in (endpoints(), endpoints()),
        options in 0_usize..=10,
        other in any::<u16>(),
    ) {
        // The kernel runs a filter on a pair of Unix sockets as on any other socket.
        let (near, mut far) =
            socket2::Socket::pair(socket2::Domain::UNIX, socket2::Type::DGRAM, None).unwrap();
        far.set_nonblocking(true).unwrap();
        far.attach_filter(&rule(to.port())).unwrap();
        let mut room = [0; 2000];
        for port in [to.port(), other, to.port().swap_bytes()] {
            let bytes = packet(from, SocketAddrV4::new(*to.ip(), port), b"data", options);
            let _ = (&near).write(&bytes);
            prop_assert_eq!(far.read(&mut room).ok(), (port == to.port()).then_some(bytes.len()));
        }
        let _ = (&near).write(&[0x45; 10]);
        prop_assert!(far.read(&mut room).is_err(), "too short");
        far.attach_filter(&nothing()).unwrap();
        let _ = (&near).write(&packet(from, to, b"data", options));
        prop_assert!(far.read(&mut room).is_err(), "nothing");
    }
}

#[test]
fn a_partial_checksum_is_the_kernel_s_own() {
    let (from, to) = ("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap());
    let mut bytes = packet(from, to, b"data", 0);
    let partial = pseudo(from, to, 12).value();
    bytes[26..28].copy_from_slice(&partial.to_be_bytes());
    assert!(parse(&bytes, 6).is_some());
    bytes[20] ^= 1;
    assert!(parse(&bytes, 6).is_some(), "the interface would make it right");
    bytes[6] = 0x20;
    assert!(parse(&bytes, 6).is_none(), "a fragment");
}
