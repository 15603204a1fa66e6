//! Tests of programs behind ports: the frames of their own sessions arrive and leave; all other
//! frames that they send are stopped and counted.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![allow(unsafe_code, reason = "packet sockets")]

mod common;

use common::{attached, filter, has, receive, receive_with, tap, two_hosts, wait_for};
use rustix::fd::{AsRawFd, OwnedFd};
use sojourn_filter::{Filter, Key, Method, Options, Port, Reason};
use sojourn_wire::Protocol;
use std::net::{IpAddr, SocketAddr, UdpSocket};

const VNET_HDR: i32 = 15;
const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TWO: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn udp(local: &str, remote: &str) -> Key {
    Key::new(Protocol::Udp, end(local), Some(end(remote))).unwrap()
}

/// The offload that a frame asks the device for: a checksum from `start` on, written `offset` bytes
/// further.
#[derive(Clone, Copy)]
struct Offload {
    wanted: bool,
    start: usize,
    offset: usize,
    gso_size: u16,
}

/// Computes the sum in ones' complement, before its inversion (RFC 1071).
fn folded_sum(bytes: &[u8], first: u32) -> u16 {
    let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let mut sum = first + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A frame with its offload.
#[derive(Clone)]
struct Message {
    bytes: Vec<u8>,
    offload: Offload,
}

impl Message {
    /// Makes a valid datagram.
    fn udp(key: &Key, text: &[u8]) -> Self {
        let (local, remote) = (key.local(), key.remote().unwrap());
        let mut bytes = [TWO, ONE].concat();
        let len = 8 + text.len() as u16;
        match (local.ip(), remote.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                bytes.extend([8, 0, 0x45, 0]);
                bytes.extend((20 + len).to_be_bytes());
                bytes.extend([0, 0, 0, 0, 64, 17, 0, 0]);
                bytes.extend([from.octets(), to.octets()].concat());
                let folded = !folded_sum(&bytes[14..], 0);
                bytes[24..26].copy_from_slice(&folded.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend(len.to_be_bytes());
                bytes.extend([17, 64]);
                bytes.extend([from.octets(), to.octets()].concat());
            }
            _ => unreachable!(),
        }
        let start = bytes.len();
        bytes.extend([local.port().to_be_bytes(), remote.port().to_be_bytes()].concat());
        bytes.extend(len.to_be_bytes());
        // The sum of the pseudo header, to which the device adds the sum of the rest.
        let first = if local.is_ipv4() { 26 } else { 22 };
        let sum = folded_sum(&bytes[first..start], 17 + u32::from(len));
        bytes.extend(sum.to_be_bytes());
        bytes.extend(text);
        Self { bytes, offload: Offload { wanted: true, start, offset: 6, gso_size: 0 } }
    }

    fn with(&self, at: usize, new: &[u8]) -> Self {
        let mut changed = self.clone();
        changed.bytes[at..at + new.len()].copy_from_slice(new);
        changed
    }

    fn send(&self, socket: &OwnedFd) {
        rustix::io::write(socket, &self.encode()).unwrap();
    }

    /// Returns the frame with its `struct virtio_net_hdr` in front.
    fn encode(&self) -> Vec<u8> {
        let Offload { wanted, start, offset, gso_size } = self.offload;
        let mut bytes = vec![u8::from(wanted), if gso_size == 0 { 0 } else { 5 }];
        let header_len = if gso_size == 0 { 0 } else { start + 8 };
        for word in [header_len as u16, gso_size, start as u16, offset as u16] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(&self.bytes);
        bytes
    }
}

/// Opens a port with sessions, whose program may send any frame.
fn open(filter: &mut Filter, keys: &[Key]) -> Port {
    let port = filter.open_port(false).unwrap();
    for key in keys {
        filter.add_flow(*key, port.owner).unwrap();
    }
    let value = 1_i32;
    // SAFETY: the kernel reads an int.
    let result = unsafe {
        let at = (&raw const value).cast();
        libc::setsockopt(port.descriptor.as_raw_fd(), libc::SOL_PACKET, VNET_HDR, at, 4)
    };
    assert_eq!(result, 0);
    port
}

/// Waits for a frame that contains these bytes; returns it without its offload header.
fn frame_with(port: &Port, bytes: &[u8]) -> Vec<u8> {
    receive_with(&port.descriptor, bytes).split_off(10)
}

/// Returns the frames that arrive, up to the first that contains these bytes.
fn all_until(tap: &OwnedFd, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    wait_for("frame", || {
        frames.extend(receive(tap));
        frames.last().is_some_and(|frame| has(frame, bytes)).then_some(())
    });
    frames
}

fn exchange(local: &'static str, remote: &'static str, method: Method) {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options { method, ..Options::default() }) else { return };
        let far = two.run(move || UdpSocket::bind(remote).unwrap());
        far.set_nonblocking(true).unwrap();
        let (key, kernels) = (udp(local, remote), UdpSocket::bind(local).unwrap());
        let port = open(&mut filter, &[key]);
        let other = open(&mut filter, &[]);
        Message::udp(&key, b"from the program").send(&port.descriptor);
        let mut buffer = [0; 4096];
        let (len, from) = wait_for("datagram", || far.recv_from(&mut buffer).ok());
        assert_eq!((&buffer[..len], from), (&b"from the program"[..], end(local)));

        // Many datagrams in one frame, which the device cuts (UDP segmentation offload).
        let mut merged = Message::udp(&key, &[b'm'; 49 * 1200 + 500]);
        merged.offload.gso_size = 1200;
        merged.send(&port.descriptor);
        for expected in std::iter::repeat_n(1200, 49).chain([500]) {
            let len = wait_for("datagram", || far.recv(&mut buffer).ok());
            assert_eq!(len, expected);
        }

        far.send_to(b"to the program", end(local)).unwrap();
        let frame = frame_with(&port, b"to the program");
        assert_eq!(frame[..6], ONE);
        assert_eq!(receive(&other.descriptor), None, "another port sees nothing");
        kernels.set_nonblocking(true).unwrap();
        assert!(kernels.recv(&mut buffer).is_err(), "the kernel sees nothing");
        let counts = filter.counts().unwrap();
        assert_eq!((counts.of(Reason::Sent), counts.of(Reason::TakenPort)), (2, 1));
        assert_eq!(counts.refused(), 0, "{counts:?}");
    });
}

#[test]
fn a_session_goes_through_its_port() {
    exchange("10.0.0.1:5000", "10.0.0.2:6000", Method::Automatic);
}

#[test]
fn a_session_of_ipv6_goes_through_its_port() {
    exchange("[fd00::1]:5000", "[fd00::2]:6000", Method::Automatic);
}

#[test]
fn a_session_goes_through_its_port_without_links() {
    exchange("10.0.0.1:5000", "10.0.0.2:6000", Method::Classic);
}

#[test]
fn a_session_that_is_held_passes_nothing_until_it_is_let_go() {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let (local, remote) = ("10.0.0.1:5000", "10.0.0.2:6000");
        let far = two.run(move || UdpSocket::bind(remote).unwrap());
        far.set_nonblocking(true).unwrap();
        let (key, _kernels) = (udp(local, remote), UdpSocket::bind(local).unwrap());
        let other = udp("10.0.0.1:5001", remote);
        let port = open(&mut filter, &[key, other]);
        let mut buffer = [0; 64];
        let mut heard = || wait_for("datagram", || far.recv(&mut buffer).ok());
        filter.hold_flow(&key, true).unwrap();
        Message::udp(&key, b"held").send(&port.descriptor);
        Message::udp(&other, b"not held").send(&port.descriptor);
        assert_eq!(heard(), 8);
        far.send_to(b"held", end(local)).unwrap();
        far.send_to(b"another's", other.local()).unwrap();
        // The first frame to arrive is the other session's.
        let frame = wait_for("frame", || receive(&port.descriptor));
        assert!(has(&frame, b"another's"));
        assert_eq!(filter.counts().unwrap().of(Reason::NotOwned), 2);
        filter.hold_flow(&key, false).unwrap();
        Message::udp(&key, b"again").send(&port.descriptor);
        assert_eq!(heard(), 5);
        far.send_to(b"and back", end(local)).unwrap();
        frame_with(&port, b"and back");
    });
}

/// Returns frames that a program must not send, each with the reason that counts it.
fn attempts(own: &Key, others: &Key) -> Vec<(&'static str, Message, Reason)> {
    let good = Message::udp(own, b"forbidden, forbidden, forbidden");
    let offload = |offload: Offload| Message { bytes: good.bytes.clone(), offload };
    let Offload { start, .. } = good.offload;
    let mut vlan = good.clone();
    vlan.bytes.splice(12..12, [0x81, 0, 0, 5]);
    vlan.offload.start += 4;
    let mut long = Message::udp(own, &[b'f'; 2600]);
    long.offload.gso_size = 1480;
    let mut options = good.clone();
    options.bytes.splice(34..34, [1; 4]);
    options.bytes[14] = 0x46;
    options.offload.start += 4;
    let at = |start, offset| offload(Offload { start, offset, ..good.offload });
    vec![
        ("another's session", Message::udp(others, b"forbidden"), Reason::NotOwned),
        ("another's address", good.with(26, &[10, 0, 0, 9]), Reason::NotOwned),
        ("another port", good.with(start, &[0, 53]), Reason::NotOwned),
        ("another peer", good.with(30, &[10, 0, 0, 7]), Reason::NotOwned),
        ("everyone", good.with(30, &[255; 4]), Reason::GroupTarget),
        ("everyone on the link", good.with(0, &[255; 6]), Reason::GroupTarget),
        ("another's link address", good.with(6, &[2, 0, 0, 0, 0, 9]), Reason::WrongSourceMac),
        ("ARP", good.with(12, &[8, 6]), Reason::NotIp),
        ("VLAN", vlan, Reason::NotIp),
        ("ICMP", good.with(23, &[1]), Reason::OtherProtocol),
        ("first fragment", good.with(20, &[0x20, 0]), Reason::SentFragment),
        ("last fragment", good.with(20, &[0, 9]), Reason::SentFragment),
        ("options", options, Reason::Extended),
        ("a wrong length", good.with(16, &[0, 200]), Reason::Malformed),
        ("long segments", long, Reason::TooLong),
        ("own checksum", offload(Offload { wanted: false, ..good.offload }), Reason::Checksum),
        ("checksum over the source address", at(20, 6), Reason::Checksum),
        ("checksum over the target address", at(24, 6), Reason::Checksum),
        ("checksum over the source port", at(34, 0), Reason::Checksum),
        ("checksum over the target port", at(34, 2), Reason::Checksum),
        ("checksum over the length", at(34, 4), Reason::Checksum),
    ]
}

#[test]
fn nothing_else_gets_through() {
    let Some((one, two)) = two_hosts() else { return };
    let seen = two.run(|| tap("eth0"));
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let own = udp("10.0.0.1:5000", "10.0.0.2:6000");
        let others = udp("10.0.0.1:5001", "10.0.0.2:6001");
        let port = open(&mut filter, &[own]);
        let other = open(&mut filter, &[others]);
        for (what, message, reason) in attempts(&own, &others) {
            let before = filter.counts().unwrap();
            message.send(&port.descriptor);
            let after = wait_for(what, || filter.counts().ok().filter(|after| after != &before));
            assert_eq!(after.of(reason), before.of(reason) + 1, "{what}: {after:?}");
        }
        // The allowed frame comes after the forbidden ones, so none of those has got through.
        Message::udp(&own, b"allowed").send(&port.descriptor);
        let frames = all_until(&seen, b"allowed");
        assert!(!frames.iter().any(|frame| has(frame, b"forbidden")), "{frames:02x?}");
        assert_eq!(receive(&other.descriptor), None);
        // sendto(2) on a packet socket takes any interface, but only of the socket's own name
        // space.
        let refused = |index: u32| {
            let bytes = Message::udp(&others, b"forbidden").encode();
            send_on(&port.descriptor, index, &bytes)
        };
        let sent: Vec<_> = (1..=64).filter(|index| refused(*index)).collect();
        assert!(sent.len() <= 2, "its end, and loopback: {sent:?}");
        Message::udp(&own, b"allowed again").send(&port.descriptor);
        let frame = receive_with(&seen, b"allowed again");
        assert!(!has(&frame, b"forbidden"));
    });
}

/// Sends on an interface by number, as sendto(2) allows the holder of a packet socket.
fn send_on(socket: &OwnedFd, index: u32, bytes: &[u8]) -> bool {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0x0800_u16.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0; 8],
    };
    // SAFETY: the frame and the address have the lengths that the call is told.
    let result = unsafe {
        let (at, len) = ((&raw const address).cast(), size_of_val(&address) as u32);
        libc::sendto(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0, at, len)
    };
    result >= 0
}

#[test]
fn nobody_elses_traffic_is_seen() {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let port = open(&mut filter, &[udp("10.0.0.1:5000", "10.0.0.2:6000")]);
        let kernels = UdpSocket::bind("10.0.0.1:7000").unwrap();
        let far = two.run(|| UdpSocket::bind("10.0.0.2:6000").unwrap());
        far.set_broadcast(true).unwrap();
        for target in ["10.0.0.1:7000", "10.0.0.255:5000", "10.0.0.255:7000"] {
            far.send_to(b"not for the program", end(target)).unwrap();
        }
        kernels.recv(&mut [0; 64]).unwrap();
        // Frames that this host sends into the port's own interface do not arrive either.
        let ip = |arguments: &str| {
            std::process::Command::new("ip").args(arguments.split(' ')).status().unwrap().success()
        };
        let name = format!("sojourn{:x}", port.owner.0);
        assert!(ip(&format!("addr add 10.9.9.1/24 dev {name}")));
        assert!(ip(&format!("neigh add 10.9.9.2 lladdr 02:00:00:00:00:09 dev {name}")));
        UdpSocket::bind("10.9.9.1:0").unwrap().send_to(b"x", end("10.9.9.2:9")).unwrap();
        far.send_to(b"for the program", end("10.0.0.1:5000")).unwrap();
        let first = wait_for("frame", || receive(&port.descriptor));
        assert!(has(&first, b"for the program"), "{first:02x?}");
    });
}

#[test]
fn a_port_is_guarded_without_its_server_and_ends_with_its_program() {
    let Some((one, two)) = two_hosts() else { return };
    let seen = two.run(|| tap("eth0"));
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let own = udp("10.0.0.1:5000", "10.0.0.2:6000");
        let others = udp("10.0.0.1:5001", "10.0.0.2:6001");
        let port = open(&mut filter, &[own]);
        let name = format!("sojourn{:x}", port.owner.0);
        let hook = "Hook sojourn_ingress eth0".to_owned();
        assert!(attached().contains(&hook) && attached().contains(&format!("Port {name} eth0")));
        drop(filter);
        // Another test that lists attached objects holds the hook for a moment, so this waits.
        wait_for("end of the hook", || (!attached().contains(&hook)).then_some(()));
        let left = attached();
        assert!(left.contains(&format!("Hook sojourn_portout {name}")), "{left:?}");
        // The server is gone, but the rules of the port hold.
        Message::udp(&others, b"forbidden").send(&port.descriptor);
        Message::udp(&own, b"allowed").send(&port.descriptor);
        let frames = all_until(&seen, b"allowed");
        assert!(!frames.iter().any(|frame| has(frame, b"forbidden")), "{frames:02x?}");
        drop(port);
        wait_for("end of the port", || attached().is_empty().then_some(()));
    });
}

#[test]
fn a_filter_that_is_detached_leaves_no_port() {
    let Some((one, _two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let _port = open(&mut filter, &[udp("10.0.0.1:5000", "10.0.0.2:6000")]);
        let left_behind = filter.open_port(false).unwrap();
        filter.detach();
        assert_eq!(attached(), [""; 0]);
        drop(left_behind);
    });
}

#[test]
fn ports_of_two_filters_have_names_of_their_own() {
    let Some((one, _two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut first) = filter(Options::default()) else { return };
        let Some(mut second) = filter(Options::default()) else { return };
        let (one, other) = (open(&mut first, &[]), open(&mut second, &[]));
        assert!(one.interface != other.interface && one.owner != other.owner);
        let again = open(&mut second, &[]);
        assert!(again.owner > other.owner);
        first.detach();
        assert_eq!(attached().iter().filter(|one| one.starts_with("Port")).count(), 2);
        second.detach();
        assert_eq!(attached(), [""; 0]);
    });
}

#[test]
fn a_datagram_that_the_device_should_fragment_is_not_sent() {
    /// `VIRTIO_NET_HDR_GSO_UDP`: one datagram, to be cut into IP fragments.
    const GSO_UDP: u8 = 3;
    let Some((one, two)) = two_hosts() else { return };
    let seen = two.run(|| tap("eth0"));
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let own = udp("10.0.0.1:5000", "10.0.0.2:6000");
        let port = open(&mut filter, &[own]);
        let mut message = Message::udp(&own, &[b"forbidden".repeat(300)].concat());
        message.offload.gso_size = 1480;
        let mut bytes = message.encode();
        bytes[1] = GSO_UDP;
        // The kernel may refuse the write, or cut the datagram; then every piece is refused.
        let sent = rustix::io::write(&port.descriptor, &bytes).is_ok();
        Message::udp(&own, b"allowed").send(&port.descriptor);
        let frames = all_until(&seen, b"allowed");
        assert!(!frames.iter().any(|frame| has(frame, b"forbidden")), "{sent}: {frames:02x?}");
        assert_eq!(filter.counts().unwrap().of(Reason::SentFragment), if sent { 2 } else { 0 });
    });
}
