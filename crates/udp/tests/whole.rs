//! Tests of the server with the kernel's own UDP sockets, with another server, and with its own
//! clients, on hosts of the tests' own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ANY, HERE, PATIENCE, Server, eventually, host, hosts, pattern, receive};
use sojourn_ipc::rt::CallError;
use sojourn_lab::net::{End, Host, Link};
use sojourn_udp::{Deadline, Error};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

/// Lengths: none, within one line of a message, one packet, fragments, the longest possible.
const LENGTHS: [usize; 8] = [0, 1, 8, 100, 1472, 1473, 9000, 65_507];

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => panic!("{address}"),
    }
}

fn kernels(host: &Host, address: Ipv4Addr) -> (UdpSocket, SocketAddrV4) {
    let socket = host.enter(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let local = v4(socket.local_addr().unwrap());
    (socket, local)
}

#[test]
fn the_kernel_s_sockets_are_answered_with_every_length() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let server = Server::start(Some(&a), &[]);
    let (kernel, far) = kernels(&b, link.v4(End::B));
    let mut buffer = vec![0; 65_536];
    for local in [ANY, SocketAddrV4::new(link.v4(End::A), 0)] {
        let mut socket = server.bind(local);
        let seen = SocketAddrV4::new(link.v4(End::A), socket.local_addr().port());
        for (seed, len) in LENGTHS.into_iter().enumerate() {
            let data = pattern(len, seed);
            socket.send_to(&data, far).unwrap();
            let (got, from) = kernel.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..got], v4(from)), (&data[..], seen), "{len} out");
            kernel.send_to(&data, seen).unwrap();
            let received = receive(&mut socket, &mut buffer);
            assert_eq!((received.len, received.from), (len, far), "{len} in");
            assert!(buffer[..len] == data, "{len} in");
        }
    }
}

#[test]
fn two_servers_join_clients_of_two_hosts() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let servers = [Server::start(Some(&a), &[]), Server::start(Some(&b), &["--threads", "3"])];
    let mut near = servers[0].bind(ANY);
    let mut far = servers[1].bind(SocketAddrV4::new(link.v4(End::B), 0));
    let mut buffer = vec![0; 65_536];
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let data = pattern(len, seed);
        near.send_to(&data, far.local_addr()).unwrap();
        let received = receive(&mut far, &mut buffer);
        assert!(buffer[..received.len] == data, "{len} there");
        far.send_to(&buffer[..received.len], received.from).unwrap();
        let received = receive(&mut near, &mut buffer);
        assert_eq!(received.from, far.local_addr());
        assert!(buffer[..received.len] == data, "{len} back");
    }
}

#[test]
fn server_to_server_needs_no_client() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let echo = SocketAddrV4::new(link.v4(End::A), 7);
    let server = Server::start(Some(&a), &["--echo", &echo.to_string()]);
    let (kernel, _) = kernels(&b, link.v4(End::B));
    let mut buffer = vec![0; 65_536];
    let mut own = server.bind(ANY);
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let data = pattern(len, seed);
        kernel.send_to(&data, echo).unwrap();
        let (got, from) = kernel.recv_from(&mut buffer).unwrap();
        assert!((&buffer[..got], v4(from)) == (&data[..], echo), "{len}");
        own.send_to(&data, echo).unwrap();
        let received = receive(&mut own, &mut buffer);
        assert!((&buffer[..received.len], received.from) == (&data[..], echo), "{len} from here");
    }
}

#[test]
fn user_to_user_goes_through_the_server_alone() {
    // The loopback interface of this host is down, so no datagram can arrive by the network.
    let Some(host) = host() else { return };
    host.ip(&["link", "set", "lo", "down"]).unwrap();
    let server = Server::start(Some(&host), &[]);
    let (mut one, mut other) = (server.bind(ANY), server.bind(HERE));
    let mut buffer = vec![0; 65_536];
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let data = pattern(len, seed);
        one.send_to(&data, other.local_addr()).unwrap();
        let received = receive(&mut other, &mut buffer);
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, one.local_addr().port());
        assert!((&buffer[..received.len], received.from) == (&data[..], from), "{len}");
        other.send_to(&data, from).unwrap();
        let received = receive(&mut one, &mut buffer);
        assert_eq!((received.len, received.from), (len, other.local_addr()));
    }
    let mut short = [0; 3];
    one.send_to(b"longer", other.local_addr()).unwrap();
    assert_eq!(receive(&mut other, &mut short).len, 6, "what was cut off is known");
    assert_eq!(&short, b"lon");
}

#[test]
fn a_receiver_that_gave_up_loses_nothing() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    let (mut one, mut other) = (server.bind(HERE), server.bind(HERE));
    let mut buffer = [0; 8];
    for round in 0..20_u8 {
        let soon = Deadline::after(Duration::from_millis(u64::from(round % 3)));
        let error = other.recv_from(&mut buffer, soon).unwrap_err();
        assert!(matches!(error, Error::Call(CallError::Timeout)), "{error}");
        one.send_to(&[round], other.local_addr()).unwrap();
        assert_eq!(receive(&mut other, &mut buffer).len, 1);
        assert_eq!(buffer[0], round);
    }
}

#[test]
fn errors_are_the_kernel_s() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    let refused = |result: Result<_, Error>| match result {
        Err(Error::Refused(number)) => number,
        other => panic!("{:?}", other.err()),
    };
    let mut one = server.bind(HERE);
    assert_eq!(refused(server.try_bind(one.local_addr()).map(drop)), libc::EADDRINUSE);
    let elsewhere = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 0);
    assert_eq!(refused(server.try_bind(elsewhere).map(drop)), libc::EADDRNOTAVAIL);
    let taken = host.enter(|| UdpSocket::bind(HERE)).unwrap().unwrap();
    let taken = v4(taken.local_addr().unwrap());
    let _kernel = host.enter(|| UdpSocket::bind(taken)).unwrap();
    assert_eq!(refused(server.try_bind(taken).map(drop)), libc::EADDRINUSE, "the kernel's");
    // The next receiver gets the error, both one that waits already and one that comes later.
    one.send_to(b"x", SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let soon = || Deadline::after(PATIENCE);
    assert_eq!(refused(one.recv_from(&mut [0; 8], soon()).map(drop)), libc::EINVAL);
    one.send_to(b"x", SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), 9)).unwrap();
    let number = refused(one.recv_from(&mut [0; 8], soon()).map(drop));
    assert!([libc::ENETUNREACH, libc::EINVAL].contains(&number), "{number}");
    assert!(matches!(one.send_to(&[0; 65_508], one.local_addr()), Err(Error::TooLong)));
    one.send_to(b"y", one.local_addr()).unwrap();
    assert_eq!(receive(&mut one, &mut [0; 8]).len, 1, "and it goes on");
}

#[test]
fn a_damaged_datagram_is_dropped_and_the_kernel_refuses_none() {
    let Some((a, b)) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let server = Server::start(Some(&a), &[]);
    let mut socket = server.bind(SocketAddrV4::new(link.v4(End::A), 0));
    let raw = b.enter(|| {
        let protocol = Some(socket2::Protocol::UDP);
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, protocol)
    });
    let raw = raw.unwrap().unwrap();
    let to = socket.local_addr();
    let head = |checksum: [u8; 2]| {
        let [high, low] = to.port().to_be_bytes();
        [0, 99, high, low, 0, 9, checksum[0], checksum[1], b'd']
    };
    let target = socket2::SockAddr::from(SocketAddrV4::new(*to.ip(), 0));
    // Two damaged datagrams, because the checksum of one could be right by chance.
    raw.send_to(&head([0x12, 0x34]), &target).unwrap();
    raw.send_to(&head([0x43, 0x21]), &target).unwrap();
    raw.send_to(&head([0, 0]), &target).unwrap();
    let mut buffer = [0; 8];
    let received = receive(&mut socket, &mut buffer);
    assert_eq!((received.len, received.from.port()), (1, 99), "without a checksum");
    let (kernel, far) = kernels(&b, link.v4(End::B));
    kernel.connect(to).unwrap();
    kernel.send(b"e").unwrap();
    let received = receive(&mut socket, &mut buffer);
    assert_eq!((received.len, received.from, buffer[0]), (1, far, b'e'), "not the damaged ones");
    kernel.set_nonblocking(true).unwrap();
    // By now an ICMP error of the kernel would have reached this socket.
    socket.send_to(b"f", far).unwrap();
    eventually("the answer", || match kernel.recv(&mut buffer) {
        Ok(len) => len == 1,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            false
        }
    });
}
