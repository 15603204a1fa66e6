//! Clients that send rubbish, never receive, hoard, vanish or are killed, beside honest ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "a filter, which no safe wrapper attaches")]

mod common;

use common::{PATIENCE, Server, connection, datagrams, eventually, soon};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use sojourn_ipc::{Connection, Deadline};
use sojourn_protocol::{Address, Client, Error, OpenedSession, OptionName, READABLE, Token, Wait};
use sojourn_session::protocol::client::{
    AddressT, ProtocolClient, TokenT, protocol_connect_options,
};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The honest pair beside which others misbehave.
fn honest(server: &Server) -> impl FnMut() + use<> {
    let (mut plain, served) = connection();
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    move || {
        client.send(session, b"ping", soon()).unwrap();
        plain.read_exact(&mut [0; 4]).unwrap();
        plain.write_all(b"pong!").unwrap();
        assert_eq!(client.receive(session, &mut [0; 8], soon()).unwrap(), 5);
        // It keeps its own, too.
        assert!(served.peer_addr().is_ok());
    }
}

fn raw(server: &Server) -> Connection {
    Connection::connect(Address::Descriptor(server.socket()), &Default::default()).unwrap()
}

#[test]
fn rubbish_ends_its_sender_and_nobody_else() {
    let server = Server::start();
    let mut still_works = honest(&server);
    let mut seed = 1_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..300_u16 {
        let mut connection = raw(&server);
        for op in [round % 19, 0xffff, (next() % 19) as u16] {
            // Half of the messages are of the right length for some operation, with small numbers.
            let bytes: Vec<u8> = match next() % 2 {
                0 => (0..next() % 200).map(|_| next() as u8).collect(),
                _ => (0..8 * (next() % 5)).map(|at| (at % 8 == 0) as u8).collect(),
            };
            let mut draft = connection.start(op, bytes.len());
            draft.encoder().put_bytes(&bytes).unwrap();
            let _ = match next() % 2 {
                0 => draft.send(Deadline::after(PATIENCE)),
                // A call that happens to be right waits.
                _ => draft.submit(Deadline::after(PATIENCE)).map(drop),
            };
        }
        if round % 20 == 0 {
            still_works();
        }
    }
    still_works();
}

#[test]
fn packets_that_are_no_greeting_end_nobody() {
    let server = Server::start();
    let mut still_works = honest(&server);
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096]] {
        let socket = server.socket();
        let _ = rustix::net::send(&socket, bytes, rustix::net::SendFlags::NOSIGNAL);
        drop(socket);
        still_works();
    }
    // Even descriptors that are no such sockets may come over the control socket.
    server.hand(&connection().0.into()).unwrap();
    server.hand(&std::fs::File::open("/dev/null").unwrap().into()).unwrap();
    still_works();
}

#[test]
fn who_never_receives_fills_its_own_connection() {
    let server = Server::start();
    let mut still_works = honest(&server);
    let (plain, served) = connection();
    let mut client = server.client();
    let OpenedSession { session, token } = client.open(served.as_fd(), true).unwrap();
    plain.set_nonblocking(true).unwrap();
    let chunk = [1; 60_000];
    while (&plain).write(&chunk).is_ok() {}
    while client.try_send(session, &chunk).is_ok() {}
    // And it waits as often as it can, for events that do not happen.
    let mut waiting: Vec<Client> = Vec::new();
    let idle = connection();
    for _ in 0..50 {
        let mut one = server.client();
        one.attach(&token).unwrap();
        let OpenedSession { session: idle, .. } = one.open(idle.1.as_fd(), true).unwrap();
        let early = Deadline::after(std::time::Duration::from_millis(1));
        assert!(one.wait(idle, READABLE, early).is_err());
        waiting.push(one);
        still_works();
    }
    drop(waiting);
    still_works();
}

#[test]
fn a_client_that_hoards_meets_its_limit_and_others_do_not() {
    let server = Server::start();
    let mut still_works = honest(&server);
    let (_plain, served) = connection();
    let mut client = server.client();
    let mut count = 0;
    let error = loop {
        // Duplicates of one socket are as good as many sockets here.
        match client.open(served.as_fd(), true) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Refused(libc::EMFILE)), "{error}");
    assert!(count >= 256, "{count}");
    still_works();
    drop(client);
    let mut client = server.client();
    eventually("room for others", || client.open(served.as_fd(), true).is_ok());
    still_works();
}

#[test]
fn who_vanishes_leaves_the_peer_an_end_and_nothing_behind() {
    let mut server = Server::start();
    let mut still_works = honest(&server);
    let descriptors =
        // Of a process that cannot be traced only root sees them.
        || std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).map_or(0, Iterator::count);
    let before = descriptors();
    for round in 0..100 {
        let (mut plain, served): (TcpStream, TcpStream) = connection();
        let mut client = server.client();
        let OpenedSession { session, .. } = client.open(served.as_fd(), round % 2 == 0).unwrap();
        client.watch(session, READABLE).unwrap_err();
        let _bell = client.bell().unwrap();
        client.watch(session, READABLE).unwrap();
        client.send(session, b"last words", soon()).unwrap();
        // A program that leaves received bytes unread ends its session by a reset.
        if round % 3 == 0 {
            plain.write_all(b"unread").unwrap();
        }
        drop((client, served));
        let mut got = Vec::new();
        let _ = plain.read_to_end(&mut got);
        assert!(got == b"last words" || round % 3 == 0, "round {round}: {got:?}");
    }
    still_works();
    eventually("descriptors", || descriptors() <= before + 5);
    server.kill();
    assert!(Client::connect(Address::Descriptor(connection().0.into()), Wait::Park).is_err());
}

#[test]
fn calls_of_who_has_left_a_session_end() {
    let server = Server::start();
    let mut still_works = honest(&server);
    let (_plain, served) = connection();
    let mut owner = server.client();
    let OpenedSession { token, .. } = owner.open(served.as_fd(), true).unwrap();
    let mut waiting = server.client();
    let session = waiting.attach(&token).unwrap();
    let mut other = waiting.another(Address::Descriptor(server.socket()), Wait::Park).unwrap();
    let waits = std::thread::spawn(move || other.wait(session, READABLE, soon()).map(drop));
    // By then it waits; if it comes later its session is closed already, which it is told, too.
    std::thread::sleep(std::time::Duration::from_millis(300));
    waiting.close(session).unwrap();
    let ended = waits.join().unwrap();
    assert!(matches!(ended, Err(Error::Refused(libc::EBADF))), "{ended:?}");
    still_works();
}

#[test]
fn addresses_and_segments_that_make_no_sense_are_refused() {
    let server = Server::start();
    let mut still_works = honest(&server);
    let (_plain, served) = datagrams();
    let mut client = server.client();
    let OpenedSession { session, token } = client.open(served.as_fd(), true).unwrap();
    let options = protocol_connect_options();
    let connection = Connection::connect(Address::Descriptor(server.socket()), &options).unwrap();
    let mut stubs = ProtocolClient::bind_by(connection, Deadline::after(PATIENCE)).unwrap();
    let (number, _) = (stubs.attach(&TokenT { half: halves(&token) }).unwrap().session, session);
    let none = AddressT::from(None);
    let invalid = Errno::INVAL.raw_os_error().cast_unsigned();
    let odd = AddressT { version: 5, ..none };
    assert_eq!(stubs.send_to(number, &odd, 0, b"x").unwrap(), invalid);
    assert_eq!(stubs.send_to(number, &none, 1 << 16, b"x").unwrap(), invalid);
    let bad = Errno::BADF.raw_os_error().cast_unsigned();
    assert_eq!(stubs.send_to(number + 1, &none, 0, b"x").unwrap(), bad);
    assert_eq!(stubs.send_to(number, &none, 0, b"x").unwrap(), 0);
    still_works();
}

/// The kernel counts the length of `SO_GET_FILTER` in instructions, so it would write past any
/// buffer of that many bytes; other options have it read or write where their value says.
#[test]
fn options_that_name_memory_are_not_the_servers() {
    let server = Server::start();
    let mut still_works = honest(&server);
    let (_plain, served) = connection();
    // `BPF_RET`: all bytes.
    let accept = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
    let instructions = [accept; 250];
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_ptr().cast_mut(),
    };
    let (level, filter) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the program and its instructions live as long as the call.
    let attached = unsafe {
        let len = size_of_val(&program) as u32;
        libc::setsockopt(served.as_raw_fd(), level, filter, (&raw const program).cast(), len)
    };
    assert_eq!(attached, 0);
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    let refused = |done: Result<(), Error>| {
        assert!(matches!(done, Err(Error::Refused(libc::ENOPROTOOPT))), "{done:?}");
    };
    let (filter, zerocopy) = (OptionName::new(level, filter), OptionName::new(6, 35));
    refused(client.get_option(session, filter).map(drop));
    refused(client.get_option(session, zerocopy).map(drop));
    // An address of the server's, of which the answer would tell whether it is there.
    refused(client.set_option(session, filter, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0]));
    refused(client.get_option(session, OptionName::new(level, 77)).map(drop));
    let kind = client.get_option(session, OptionName::new(level, libc::SO_TYPE)).unwrap();
    assert_eq!(kind, libc::SOCK_STREAM.to_ne_bytes());
    still_works();
}

fn halves(token: &Token) -> [u64; 2] {
    let bytes = token.to_bytes();
    [0, 8].map(|at| bytes[at..].first_chunk().copied().map(u64::from_ne_bytes).unwrap())
}
