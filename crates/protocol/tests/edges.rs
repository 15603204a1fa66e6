//! Clients whose messages have the right forms and values at the edges: every operation, with
//! sessions and tokens of others, descriptors of every kind, and connections that end in the
//! middle, beside an honest client.
//!
//! Not here: messages of wrong forms, hoarding (`hostile`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{PATIENCE, Server, connection, datagrams, eventually, soon};
use rustix::fd::{AsFd, OwnedFd};
use sojourn_ipc::rt::CallError;
use sojourn_ipc::{Connection, Deadline};
use sojourn_protocol::{Address, OpenedSession};
use sojourn_session::protocol::client::{
    ANSWER_FIRST, AddressT, DATA_MAX, DONT_WAIT, OPTION_MAX, PEEK, ProtocolClient, TokenT,
    protocol_connect_options,
};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;

/// Calls of each client's thread.
const CALLS: usize = 1500;
/// Clients at the same time.
const CLIENTS: u64 = 3;
const EDGES: [u32; 10] =
    [0, 1, 2, 3, 8, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff, 0x2017];

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// A number that sessions have, or one at an edge.
    fn word(&mut self) -> u32 {
        match self.below(3) {
            0 => EDGES[self.below(EDGES.len())],
            _ => self.below(12) as u32,
        }
    }
}

/// A client without any checks of its own.
type Stubs = ProtocolClient<Connection>;

fn stubs(server: &Server) -> Stubs {
    let options = protocol_connect_options();
    let connection = Connection::connect(Address::Descriptor(server.socket()), &options).unwrap();
    ProtocolClient::bind_by(connection, Deadline::after(PATIENCE)).unwrap()
}

/// Descriptors of many kinds, most of which are no sessions; and the other ends, which nobody uses.
fn descriptors() -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    let (one, other) = connection();
    let (datagram, far) = datagrams();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let (unix, end) = std::os::unix::net::UnixStream::pair().unwrap();
    let idle = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    );
    let offered = vec![
        one.into(),
        datagram.into(),
        UdpSocket::bind("127.0.0.1:0").unwrap().into(),
        TcpListener::bind("127.0.0.1:0").unwrap().into(),
        idle.unwrap(),
        reader,
        unix.into(),
        std::fs::File::open("/dev/null").unwrap().into(),
        rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap(),
    ];
    (offered, vec![other.into(), far.into(), writer, end.into()])
}

/// The tokens of all clients' sessions and groups.
type Tokens = Mutex<Vec<TokenT>>;

/// Makes one call, which does not wait for anybody else's.
fn call(
    client: &mut Stubs,
    random: &mut Random,
    offered: &[OwnedFd],
    tokens: &Tokens,
) -> Result<(), CallError> {
    let client = client.with_deadline(soon());
    let session = random.word();
    let token = |random: &mut Random| {
        let tokens = tokens.lock().unwrap();
        let any = TokenT { half: [u64::MAX, random.below(9) as u64] };
        tokens.get(random.below(tokens.len() + 1)).copied().unwrap_or(any)
    };
    let data = vec![7; [0, 1, 1400, DATA_MAX as usize][random.below(4)]];
    let size = [0, 1, 100, DATA_MAX][random.below(4)];
    let flags = DONT_WAIT | [0, PEEK, ANSWER_FIRST, PEEK | ANSWER_FIRST, !0][random.below(5)];
    let (level, name) = ([0, 1, 6, 17, 41, -1][random.below(6)], random.word().cast_signed() % 90);
    let ip = [[0; 16], [0xff; 16], [127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
    let (mut value, mut more) = (Vec::new(), Vec::new());
    match random.below(20) {
        0..=2 => {
            let end = &offered[random.below(offered.len())];
            let opened = client.open(Some(end.as_fd()), random.below(2) == 0)?;
            tokens.lock().unwrap().push(opened.token);
        }
        3 => client.attach(&token(random)).map(drop)?,
        4 => client.send(session, &data).map(drop)?,
        5 => client.receive(session, flags, size, &mut value).map(drop)?,
        6 => client.wait(session, 0).map(drop)?,
        7 => client.bell().map(drop)?,
        8 => client.watch(session, random.word()).map(drop)?,
        9 => client.collect().map(drop)?,
        10 => client.shutdown(session, random.word()).map(drop)?,
        11 => {
            let len = [0, 1, 4, 16, OPTION_MAX as usize][random.below(5)];
            let value = vec![random.below(256) as u8; len];
            client.set_option(session, level, name, &value)?;
        }
        12 => {
            client.get_option(session, level, name, size.min(OPTION_MAX), &mut value).map(drop)?
        }
        13 => client.release(session).map(drop)?,
        14 => client.close(session).map(drop)?,
        15 => client.cancel(session).map(drop)?,
        16 => {
            let group = client.group()?;
            tokens.lock().unwrap().push(group.group);
        }
        17 => client.join(&token(random)).map(drop)?,
        18 => {
            let (version, port) = ([0, 4, 6, 5][random.below(4)], random.word() as u16);
            let (ip, scope) = (ip[random.below(3)], random.word());
            let to = AddressT { ip, scope, flow: !0, port, version };
            client.send_to(session, &to, random.word(), &data)?;
        }
        _ => client.receive_from(session, flags, size, &mut value, &mut more).map(drop)?,
    }
    Ok(())
}

#[test]
fn every_operation_with_every_value_leaves_the_server_whole() {
    let server = Server::start();
    let (mut plain, served) = connection();
    let mut honest = server.client();
    let OpenedSession { session, .. } = honest.open(served.as_fd(), true).unwrap();
    let mut still_works = move || {
        honest.send(session, b"ping", soon()).unwrap();
        plain.read_exact(&mut [0; 4]).unwrap();
        plain.write_all(b"pong!").unwrap();
        assert_eq!(honest.receive(session, &mut [0; 8], soon()).unwrap(), 5);
    };
    still_works();
    let open =
        || std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).map_or(0, Iterator::count);
    let before = open();
    let (tokens, server) = (Tokens::default(), &server);
    std::thread::scope(|threads| {
        for number in 1..=CLIENTS {
            let tokens = &tokens;
            threads.spawn(move || {
                let (offered, _others) = descriptors();
                let mut random = Random(number);
                let mut client = stubs(server);
                for _ in 0..CALLS {
                    // A connection ends after a while, with whatever it has.
                    if random.below(100) == 0 {
                        client = stubs(server);
                    }
                    let done = call(&mut client, &mut random, &offered, tokens);
                    assert!(!matches!(done, Err(CallError::Timeout)), "{done:?}");
                    if done.is_err() {
                        client = stubs(server);
                    }
                }
            });
        }
        for _ in 0..50 {
            still_works();
        }
    });
    still_works();
    eventually("descriptors", || open() <= before + 5);
    assert!(served.peer_addr().is_ok());
}
