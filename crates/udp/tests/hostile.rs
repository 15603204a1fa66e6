//! Tests of clients that send invalid messages, disappear, never receive, or are killed, and of
//! servers that are killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ANY, HERE, PATIENCE, Server, eventually, host, receive, watchdog};
use socket2::{Domain, Protocol, Type};
use sojourn_ipc::rt::{self, CallError};
use sojourn_ipc::{Connection, Deadline};
use sojourn_udp::{Error, Wait};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Variable with the role of another process: `ROLE PATH`.
const ROLE: &str = "SOJOURN_UDP_TEST_ROLE";

/// Makes a pair of honest clients, which must not notice the misbehaviour of others.
fn honest(server: &Server) -> impl FnMut() + use<> {
    let (mut one, mut other) = (server.bind(HERE), server.bind(HERE));
    move || {
        one.send_to(b"ping", other.local_addr()).unwrap();
        let received = receive(&mut other, &mut [0; 8]);
        assert_eq!(received.from, one.local_addr());
        other.send_to(b"pong!", received.from).unwrap();
        assert_eq!(receive(&mut one, &mut [0; 8]).len, 5);
    }
}

#[test]
fn rubbish_ends_its_sender_and_nobody_else() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    let mut still_works = honest(&server);
    let mut seed = 1_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..200_u16 {
        let mut connection = Connection::connect(server.address(), &Default::default()).unwrap();
        if round % 2 == 0 {
            // Bound first, so that the invalid messages meet a client with a port.
            let mut draft = connection.start(0, 8);
            draft.encoder().put_bytes(&[127, 0, 0, 1, 0, 0, 0, 0]).unwrap();
            let _ = draft.call(Deadline::after(PATIENCE));
        }
        for op in [round % 5, 0xffff] {
            let bytes: Vec<u8> = (0..next() % 200).map(|_| next() as u8).collect();
            let mut draft = connection.start(op, bytes.len());
            draft.encoder().put_bytes(&bytes).unwrap();
            let _ = match next() % 2 {
                0 => draft.send(Deadline::after(PATIENCE)),
                // Not waited for: a call of `recvfrom` that happens to be valid would wait for a
                // datagram.
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
fn before_bind_nothing_is_sent_or_received() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    let mut connection = Connection::connect(server.address(), &Default::default()).unwrap();
    let call = |connection: &mut Connection, op, body: &[u8]| {
        let mut draft = connection.start(op, body.len());
        draft.encoder().put_bytes(body).unwrap();
        let reply = draft.call(Deadline::after(PATIENCE)).unwrap();
        u32::from_ne_bytes(*reply.body().first_chunk().unwrap())
    };
    assert_eq!(call(&mut connection, 2, &[0; 8]), libc::EINVAL.cast_unsigned());
    assert_eq!(call(&mut connection, 0, &[127, 0, 0, 1, 0, 0, 0, 0]), 0);
    assert_eq!(call(&mut connection, 0, &[127, 0, 0, 1, 0, 0, 0, 0]), libc::EINVAL.cast_unsigned());
    let mut draft = connection.start(77, 0);
    assert!(draft.encoder().put_bytes(&[]).is_ok());
    let unknown = draft.call(Deadline::after(PATIENCE)).err();
    assert!(matches!(unknown, Some(CallError::Fault(rt::Fault::UNKNOWN_OPERATION))), "{unknown:?}");
}

#[test]
fn who_never_receives_costs_its_own_queue_alone() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    let mut still_works = honest(&server);
    let (mut sender, mut lazy) = (server.bind(HERE), server.bind(HERE));
    let data = [5; 60_000];
    for round in 0..500_u32 {
        sender.send_to(&data[..4 + (round as usize * 97) % 59_000], lazy.local_addr()).unwrap();
        if round % 100 == 0 {
            still_works();
        }
    }
    still_works();
    // The datagram to the sender itself comes after all those before it: the queue is full by now.
    let own = sender.local_addr();
    sender.send_to(b"last", own).unwrap();
    assert_eq!(receive(&mut sender, &mut [0; 8]).len, 4);
    // The queue has the oldest datagrams, as many as it has room for.
    let mut count = 0;
    while lazy.recv_from(&mut [0; 8], Deadline::after(PATIENCE / 40)).is_ok() {
        count += 1;
    }
    assert_eq!(count, 32);
    sender.send_to(b"again", lazy.local_addr()).unwrap();
    assert_eq!(receive(&mut lazy, &mut [0; 8]).len, 5, "and there is room again");
}

#[test]
fn who_vanishes_leaves_no_port_behind() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &["--threads", "2"]);
    let mut still_works = honest(&server);
    let local = server.bind(HERE).local_addr();
    for _ in 0..40 {
        let mut socket = None;
        eventually("the port is free again", || {
            socket = server.try_bind(local).ok();
            socket.is_some()
        });
        let mut socket = socket.unwrap();
        socket.send_to(b"to itself, not received", local).unwrap();
        let _ = socket.recv_from(&mut [], Deadline::after(std::time::Duration::ZERO));
    }
    still_works();
    eventually("free for the kernel, too", || {
        host.enter(|| UdpSocket::bind(local)).unwrap().is_ok()
    });
}

/// Plays the role that the parent process asks for; does nothing in a plain run of the tests.
#[test]
fn child_entry() {
    let Ok(words) = std::env::var(ROLE) else { return };
    watchdog(60);
    let [role, path] = words.split(' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let address = sojourn_udp::Address::parse(path).unwrap();
    let reserved = SocketAddrV4::new(*HERE.ip(), 53);
    match role {
        "wait" => {
            let mut socket = sojourn_udp::Socket::bind(address, HERE, Wait::Adaptive).unwrap();
            println!("@bound {}", socket.local_addr());
            let _ = socket.recv_from(&mut [0; 8], Deadline::NEVER);
        }
        "reserved" => match sojourn_udp::Socket::bind(address, reserved, Wait::Adaptive) {
            Err(Error::Refused(number)) => println!("@refused {number}"),
            other => println!("@bound {other:?}"),
        },
        "hoard" => {
            let address = || sojourn_udp::Address::parse(path).unwrap();
            let bind = |_| sojourn_udp::Socket::bind(address(), HERE, Wait::Park).ok();
            let sockets: Vec<_> = (0..300).map_while(bind).collect();
            println!("@has {}", sockets.len());
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        other => panic!("{other}"),
    }
}

fn child(role: &str, server: &Server, user: Option<u32>) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_entry", "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env(ROLE, format!("{role} {}", server.path.display()));
    if let Some(user) = user {
        command.uid(user);
    }
    command.spawn().unwrap()
}

/// Returns the text that the child prints behind `@WORD`.
fn hear(child: &mut std::process::Child, word: &str) -> String {
    use std::io::BufRead as _;
    let mark = format!("@{word} ");
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = String::new();
    for line in lines.map_while(Result::ok) {
        if let Some(at) = line.find(&mark) {
            return line[at + mark.len()..].to_owned();
        }
        said.push_str(&line);
    }
    panic!("no {mark}: {said}");
}

#[test]
fn a_killed_client_s_port_is_free_and_its_sender_not_disturbed() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    let mut still_works = honest(&server);
    let mut sender = server.bind(HERE);
    for _ in 0..5 {
        let mut victim = child("wait", &server, None);
        let local: SocketAddrV4 = hear(&mut victim, "bound").parse().unwrap();
        victim.kill().unwrap();
        sender.send_to(b"to the dead", local).unwrap();
        victim.wait().unwrap();
        eventually("the port is free", || server.try_bind(local).is_ok());
        still_works();
    }
}

#[test]
fn ports_of_the_system_are_root_s() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    let mut stranger = child("reserved", &server, Some(65_534));
    assert_eq!(hear(&mut stranger, "refused"), libc::EACCES.to_string());
    stranger.wait().unwrap();
    assert_eq!(server.bind(SocketAddrV4::new(*ANY.ip(), 53)).local_addr().port(), 53);
}

#[test]
fn no_two_users_take_every_port() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    server.limit_descriptors(1024);
    let mut still_works = honest(&server);
    let users = [65_534, 65_533].map(|user| {
        let mut stranger = child("hoard", &server, Some(user));
        let count: u32 = hear(&mut stranger, "has").parse().unwrap();
        eprintln!("user {user} has {count}");
        stranger
    });
    still_works();
    let (mut one, mut other) = (server.bind(HERE), server.bind(ANY));
    one.send_to(b"here", other.local_addr()).unwrap();
    assert_eq!(receive(&mut other, &mut [0; 8]).len, 4);
    other.send_to(b"and there", one.local_addr()).unwrap();
    for mut stranger in users {
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

/// Others would take a datagram from there for one of the group's, or of the network's.
#[test]
fn nobody_has_the_address_of_a_group() {
    let Some(host) = host() else { return };
    let server = Server::start(Some(&host), &[]);
    for address in ["224.0.0.1:0", "239.1.2.3:0", "255.255.255.255:0", "127.255.255.255:0"] {
        let bound = server.try_bind(address.parse().unwrap());
        assert!(bound.is_err(), "{address}: {bound:?}");
    }
    assert!(server.try_bind("127.0.0.2:0".parse().unwrap()).is_ok());
}

#[test]
fn a_killed_server_is_told_of_and_the_next_one_has_its_ports() {
    let Some(host) = host() else { return };
    let mut server = Server::start(Some(&host), &[]);
    let mut socket = server.bind(HERE);
    let local = socket.local_addr();
    let waiting = std::thread::spawn(move || {
        let error = socket.recv_from(&mut [0; 8], Deadline::NEVER).unwrap_err();
        (error, socket.send_to(b"x", local).unwrap_err())
    });
    server.kill();
    let (received, sent) = waiting.join().unwrap();
    for error in [received, sent] {
        assert!(matches!(error, Error::Call(CallError::Disconnected(_))), "{error}");
    }
    let error = server.try_bind(local).map(drop).unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error}");
    let path = server.path.clone();
    // The guard of the server's name removes it; until then no other server can take it.
    eventually("the name is free", || !path.exists());
    let next = Server::start_at(path, Some(&host), &[]);
    assert_eq!(next.bind(local).local_addr(), local);
}

/// One datagram whose source is the other echo would have two of them answer each other for ever.
#[test]
fn echoes_do_not_answer_each_other() {
    let Some(host) = host() else { return };
    let words = ["--echo", "127.0.0.1:7", "--echo", "127.0.0.1:5007"];
    let _server = Server::start(Some(&host), &words);
    let raw = || socket2::Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
    let (forger, plain) =
        host.enter(|| (raw().unwrap(), UdpSocket::bind(("127.0.0.1", 0)).unwrap())).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    let own = plain.local_addr().unwrap().port();
    let ask = |from: u16| {
        let to = SocketAddrV4::new(*HERE.ip(), 0).into();
        let words = [from, 7, 9, 0].map(u16::to_be_bytes);
        forger.send_to(&[words.as_flattened(), b"!"].concat(), &to).unwrap();
    };
    [5007, 7, 19, 53].into_iter().for_each(ask);
    // An echo that is asked afterwards answers, so the others would have been answered by now.
    for _ in 0..10 {
        ask(own);
        assert_eq!(plain.recv(&mut [0; 8]).unwrap(), 1);
    }
    forger.set_nonblocking(true).unwrap();
    let mut packet = [0; 64];
    while std::io::Read::read(&mut &forger, &mut packet).is_ok() {
        let ports = [20, 22].map(|at| u16::from_be_bytes([packet[at], packet[at + 1]]));
        assert!(ports[0] != 7 || [7, own].contains(&ports[1]), "an answer to {}", ports[1]);
    }
}
