//! UDP sockets at a protocol server, over sockets of the kernel's: each datagram with its sender
//! and its length, several processes at one socket, errors as the kernel's, the way back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Server, datagrams, eventually, pattern, soon};
use rustix::fd::AsFd;
use rustix::io::Errno;
use sojourn_protocol::{
    Client, Datagram, Deadline, Error, OpenedSession, READABLE, Session, WRITABLE,
};
use std::net::UdpSocket;
use std::time::Duration;

fn is_refused<T>(result: Result<T, Error>, number: Errno) -> bool {
    matches!(result, Err(Error::Refused(found)) if found == number.raw_os_error())
}

fn received(client: &mut Client, session: Session, room: usize) -> (Datagram, Vec<u8>) {
    let mut buffer = vec![0; room];
    let datagram = client.receive_from(session, &mut buffer, soon()).unwrap();
    buffer.truncate(datagram.copied);
    (datagram, buffer)
}

#[test]
fn datagrams_keep_their_senders_and_their_lengths() {
    let server = Server::start();
    let (plain, served) = datagrams();
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    let from = plain.local_addr().unwrap();
    for len in [0, 1, 7, 1472, 9000, 65_507] {
        let text = pattern(len, len);
        plain.send(&text).unwrap();
        let (datagram, bytes) = received(&mut client, session, 1 << 16);
        assert_eq!(datagram, Datagram { from, len, copied: len });
        assert!(bytes == text, "{len} bytes");
        client.send_to(session, &text, None).unwrap();
        let mut buffer = vec![0; 1 << 16];
        assert_eq!(plain.recv(&mut buffer).unwrap(), len);
        assert!(buffer[..len] == text, "{len} bytes back");
    }
    plain.send(b"0123456789").unwrap();
    plain.send(b"next").unwrap();
    let (datagram, bytes) = received(&mut client, session, 4);
    assert_eq!((datagram.len, &bytes[..]), (10, &b"0123"[..]), "the rest is thrown away");
    assert_eq!(received(&mut client, session, 100).1, b"next");
    let mut buffer = [0; 8];
    assert!(client.try_receive_from(session, &mut buffer).unwrap_err().would_block());
    let early = Deadline::after(Duration::from_millis(50));
    assert!(client.receive_from(session, &mut buffer, early).is_err(), "nothing came");
    plain.send(b"later").unwrap();
    assert_eq!(received(&mut client, session, 8).1, b"later", "nobody has taken it before");
}

#[test]
fn a_socket_without_a_peer_hears_and_answers_everybody() {
    let server = Server::start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(socket.as_fd(), true).unwrap();
    assert!(is_refused(client.send_to(session, b"x", None), Errno::DESTADDRREQ));
    assert!(is_refused(client.send_to(session, &[0; 65_508], Some(address)), Errno::MSGSIZE));
    for text in [&b"one"[..], b"two", b""] {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(common::PATIENCE)).unwrap();
        peer.send_to(text, address).unwrap();
        let (datagram, bytes) = received(&mut client, session, 16);
        assert_eq!((datagram.from, &bytes[..]), (peer.local_addr().unwrap(), text));
        client.send_to(session, b"answer", Some(datagram.from)).unwrap();
        let mut buffer = [0; 16];
        let (len, from) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"answer"[..], address));
    }
}

#[test]
fn errors_events_and_the_way_back_are_as_in_the_kernel() {
    let server = Server::start();
    let (plain, served) = datagrams();
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    let is_bytes = [client.try_send(session, b"x"), client.try_receive(session, &mut [0; 4])];
    assert!(is_bytes.into_iter().all(|result| is_refused(result, Errno::OPNOTSUPP)));
    assert_eq!(client.wait(session, 0, soon()).unwrap(), WRITABLE);
    plain.send(b"x").unwrap();
    assert_eq!(client.wait(session, READABLE, soon()).unwrap(), READABLE);
    assert_eq!(received(&mut client, session, 4).1, b"x");
    drop(plain);
    eventually("nobody listens any more", || {
        is_refused(client.send_to(session, b"x", None), Errno::CONNREFUSED)
    });
    let socket = client.release(session).unwrap();
    assert!(is_refused(client.send_to(session, b"x", None), Errno::STALE));
    assert_eq!(UdpSocket::from(socket).local_addr().unwrap(), served.local_addr().unwrap());
}

#[test]
fn each_datagram_is_one_clients() {
    // No more than the receive buffer holds.
    const COUNT: u32 = 100;
    let server = Server::start();
    let (plain, served) = datagrams();
    let mut client = server.client();
    let OpenedSession { session, token } = client.open(served.as_fd(), true).unwrap();
    let take_all = |mut client: Client, session| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            loop {
                match received(&mut client, session, 4).1.try_into().map(u32::from_ne_bytes) {
                    Ok(number) => all.push(number),
                    Err(_) => return all,
                }
            }
        })
    };
    let mut other = server.client();
    let attached = other.attach(&token).unwrap();
    let threads = [take_all(client, session), take_all(other, attached)];
    for number in 0..COUNT {
        plain.send(&number.to_ne_bytes()).unwrap();
    }
    threads.iter().for_each(|_| assert_eq!(plain.send(b"").unwrap(), 0));
    let mut all: Vec<u32> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..COUNT).collect::<Vec<_>>());
}
