//! Programs at a protocol server, over connections of the kernel's: every operation, several
//! processes at one session, the end of the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{PATIENCE, Server, connection, eventually, pattern, soon};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use sojourn_ipc::rt::CallError;
use sojourn_protocol::{
    Address, Client, DATA_MAX, Deadline, Error, OpenedSession, OptionName, PEER_DONE, READABLE,
    SessionEvents, Token, WRITABLE, Wait,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

const HOW: [bool; 2] = [true, false];

fn is_refused<T: core::fmt::Debug>(result: &Result<T, Error>, number: i32) -> bool {
    matches!(result, Err(Error::Refused(found)) if *found == number)
}

#[test]
fn questions_and_answers_of_every_length() {
    let server = Server::start();
    for is_sole in HOW {
        let (mut plain, served) = connection();
        let mut client = server.client();
        let OpenedSession { session, .. } = client.open(served.as_fd(), is_sole).unwrap();
        for len in [1, 7, 100, 1460, 4096, 40_000, DATA_MAX as usize, 300_000] {
            let question = pattern(len, len);
            let echo = std::thread::spawn({
                let (mut plain, question) = (plain.try_clone().unwrap(), question.clone());
                move || {
                    let mut got = vec![0; question.len()];
                    plain.read_exact(&mut got).unwrap();
                    assert!(got == question);
                    plain.write_all(&got).unwrap();
                }
            });
            client.send(session, &question, soon()).unwrap();
            let mut answer = vec![0; len];
            let mut done = 0;
            while done < len {
                let got = client.receive(session, &mut answer[done..], soon()).unwrap();
                assert!(got > 0, "the end after {done} of {len}");
                done += got;
            }
            assert!(answer == question, "{len} bytes");
            echo.join().unwrap();
        }
        plain.write_all(b"last").unwrap();
        plain.shutdown(Shutdown::Write).unwrap();
        let mut rest = [0; 8];
        assert_eq!(client.receive(session, &mut rest, soon()).unwrap(), 4);
        assert_eq!(client.receive(session, &mut rest, soon()).unwrap(), 0, "the end");
        client.shutdown(session, Shutdown::Write).unwrap();
        assert_eq!(plain.read(&mut rest).unwrap(), 0);
    }
}

#[test]
fn who_waits_is_answered_and_others_are_not_held_up() {
    let server = Server::start();
    let (mut plain, served) = connection();
    let mut client = server.client();
    let OpenedSession { session, token } = client.open(served.as_fd(), true).unwrap();
    let mut buffer = [0; 64];
    assert!(client.try_receive(session, &mut buffer).unwrap_err().would_block());
    let early = Deadline::after(Duration::from_millis(50));
    assert!(client.receive(session, &mut buffer, early).is_err(), "nothing came");
    let waiting = std::thread::spawn({
        let mut other = server.client();
        move || {
            let session = other.attach(&token).unwrap();
            let mut buffer = [0; 64];
            let len = other.receive(session, &mut buffer, Deadline::NEVER).unwrap();
            buffer[..len].to_vec()
        }
    });
    // While one waits the session answers others, on the same connection and on new ones.
    assert_eq!(client.wait(session, WRITABLE, soon()).unwrap(), WRITABLE);
    assert_eq!(client.wait(session, 0, soon()).unwrap(), WRITABLE);
    client.send(session, b"question", soon()).unwrap();
    plain.read_exact(&mut buffer[..8]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    plain.write_all(b"answer").unwrap();
    assert_eq!(waiting.join().unwrap(), b"answer");
    let later = std::thread::spawn({
        let mut plain = plain.try_clone().unwrap();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            plain.write_all(b"!").unwrap();
        }
    });
    assert_eq!(client.wait(session, READABLE, soon()).unwrap(), READABLE);
    later.join().unwrap();
    assert_eq!(client.try_receive(session, &mut buffer).unwrap(), 1);
    drop(plain);
    let ended = client.wait(session, PEER_DONE, soon()).unwrap();
    assert_eq!(ended & PEER_DONE, PEER_DONE);
}

#[test]
fn receives_that_give_up_lose_nothing_and_overtake_nobody() {
    const ROUNDS: usize = 2000;
    let server = Server::start();
    let (mut plain, served) = connection();
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    let sent = pattern(ROUNDS, 1);
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || {
            for byte in sent {
                plain.write_all(&[byte]).unwrap();
                // Some bytes come in the middle of a wait, some at its end.
                std::thread::yield_now();
            }
            plain
        }
    });
    let (mut got, mut given_up) = (Vec::new(), 0);
    while got.len() < ROUNDS || given_up == 0 {
        let mut buffer = [0; 3];
        let limit = Deadline::after(Duration::from_micros(got.len() as u64 % 60));
        match client.receive(session, &mut buffer, limit) {
            Ok(len) => got.extend_from_slice(&buffer[..len]),
            Err(error) => {
                assert!(matches!(error, Error::Call(CallError::Timeout)), "{error:?}");
                given_up += 1;
            }
        }
    }
    assert!(got == sent, "{} of {}", got.len(), sent.len());
    drop(writer.join().unwrap());
    assert_eq!(client.receive(session, &mut [0; 1], soon()).unwrap(), 0, "the end");
}

#[test]
fn connections_of_a_group_have_one_session_and_wait_each_for_itself() {
    let server = Server::start();
    let (mut plain, served) = connection();
    let mut client = server.client();
    let other = |client: &mut Client| {
        client.another(Address::Descriptor(server.socket()), Wait::Adaptive).unwrap()
    };
    let mut waiting = other(&mut client);
    // Opened after that, by the later one, and closed by the first.
    let OpenedSession { session, .. } = waiting.open(served.as_fd(), true).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let waits = std::thread::spawn(move || {
        let mut buffer = [0; 8];
        let len = waiting.receive(session, &mut buffer, Deadline::NEVER).unwrap();
        tell.send(()).unwrap();
        let ended = waiting.receive(session, &mut [0; 8], Deadline::NEVER);
        (buffer[..len].to_vec(), is_refused(&ended, libc::EBADF))
    });
    client.send(session, b"question", soon()).unwrap();
    plain.read_exact(&mut [0; 8]).unwrap();
    plain.write_all(b"answer").unwrap();
    told.recv_timeout(PATIENCE).unwrap();
    // The bell is the first one's.
    let (bell, mut third) = (client.bell().unwrap(), other(&mut client));
    third.watch(session, WRITABLE).unwrap();
    eventually("the bell", || rings(&bell, Duration::from_millis(100)));
    assert_eq!(client.collect().unwrap(), [SessionEvents { session, events: WRITABLE }]);
    assert!(is_refused(
        &third.another(Address::Descriptor(server.socket()), Wait::Park),
        libc::EBUSY
    ));
    client.close(session).unwrap();
    assert_eq!(waits.join().unwrap(), (b"answer".to_vec(), true));
    drop(client);
    eventually("the group is gone", || is_refused(&third.try_send(session, b"!"), libc::EBADF));
}

fn rings(bell: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
    let found = poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&limit)).unwrap() > 0;
    if found {
        let _ = rustix::io::read(bell, &mut [0; 64]);
    }
    found
}

#[test]
fn a_bell_tells_of_many_sessions_at_one_descriptor() {
    let server = Server::start();
    let mut client = server.client();
    let (one, other) = ([connection(), connection()], connection());
    let plain = [&one[0].0, &one[1].0];
    let sessions =
        [&one[0].1, &one[1].1].map(|end| client.open(end.as_fd(), true).unwrap().session);
    assert!(is_refused(&client.watch(sessions[0], READABLE), libc::ENXIO), "no bell yet");
    let bell = client.bell().unwrap();
    sessions.iter().for_each(|session| client.watch(*session, READABLE).unwrap());
    assert!(!rings(&bell, Duration::from_millis(50)));
    for (mut plain, session) in plain.into_iter().zip(sessions) {
        plain.write_all(b"?").unwrap();
        eventually("the bell", || rings(&bell, Duration::from_millis(100)));
        assert_eq!(client.collect().unwrap(), [SessionEvents { session, events: READABLE }]);
        // An event is told once. A new watch tells at once of bytes that are there.
        assert!(!rings(&bell, Duration::from_millis(20)));
        client.watch(session, READABLE).unwrap();
        eventually("the bell", || rings(&bell, Duration::from_millis(100)));
        assert_eq!(client.collect().unwrap(), [SessionEvents { session, events: READABLE }]);
        assert_eq!(client.try_receive(session, &mut [0; 8]).unwrap(), 1);
    }
    let OpenedSession { session: third, .. } = client.open(other.1.as_fd(), true).unwrap();
    client.watch(third, WRITABLE).unwrap();
    eventually("room", || {
        client.collect().unwrap() == [SessionEvents { session: third, events: WRITABLE }]
    });
    client.watch(third, READABLE).unwrap();
    client.release(third).unwrap();
    eventually("its release", || client.collect().unwrap().iter().any(|one| one.session == third));
}

#[test]
fn a_fork_child_and_its_parent_both_go_on() {
    let server = Server::start();
    let (mut plain, served) = connection();
    let mut parent = server.client();
    let OpenedSession { session, token } = parent.open(served.as_fd(), true).unwrap();
    let mut child = server.client();
    let token = Token::from_bytes(token.to_bytes());
    let theirs = child.attach(&token).unwrap();
    assert!(is_refused(&child.attach(&Token::from_bytes([7; 16])), libc::ENOENT));
    for round in 0..200 {
        let (who, what) =
            if round % 2 == 0 { (&mut parent, session) } else { (&mut child, theirs) };
        plain.write_all(&[round]).unwrap();
        let mut byte = [0];
        assert_eq!(who.receive(what, &mut byte, soon()).unwrap(), 1);
        who.send(what, &byte, soon()).unwrap();
        plain.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [round]);
    }
    parent.close(session).unwrap();
    assert!(is_refused(&parent.try_send(session, b"!"), libc::EBADF));
    child.send(theirs, b"alone", soon()).unwrap();
    plain.read_exact(&mut [0; 5]).unwrap();
    drop((child, served));
    assert_eq!(plain.read(&mut [0; 8]).unwrap(), 0, "nobody has it any more");
}

#[test]
fn what_is_released_goes_on_in_the_kernel() {
    let server = Server::start();
    let (mut plain, served) = connection();
    let (mut one, mut other) = (server.client(), server.client());
    let OpenedSession { session, token } = one.open(served.as_fd(), true).unwrap();
    drop(served);
    let theirs = other.attach(&token).unwrap();
    one.send(session, b"served", soon()).unwrap();
    plain.read_exact(&mut [0; 6]).unwrap();
    let waiting = std::thread::spawn(move || {
        let error = other.receive(theirs, &mut [0; 8], Deadline::NEVER);
        assert!(is_refused(&error, libc::ESTALE), "{error:?}");
        other.release(theirs).unwrap()
    });
    std::thread::sleep(Duration::from_millis(50));
    let mut kernels = TcpStream::from(one.release(session).unwrap());
    let shared = TcpStream::from(waiting.join().unwrap());
    assert!(is_refused(&one.try_send(session, b"!"), libc::ESTALE));
    assert!(is_refused(&one.try_receive(session, &mut [0; 8]), libc::ESTALE));
    assert!(is_refused(&one.wait(session, 0, soon()), libc::ESTALE));
    kernels.write_all(b"kernel").unwrap();
    plain.read_exact(&mut [0; 6]).unwrap();
    one.close(session).unwrap();
    plain.write_all(b"still").unwrap();
    let mut got = [0; 5];
    (&shared).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"still");
}

#[test]
fn options_are_the_sockets() {
    let server = Server::start();
    let (_plain, served) = connection();
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    let nodelay = OptionName::new(libc::IPPROTO_TCP, libc::TCP_NODELAY);
    assert_eq!(client.get_option(session, nodelay).unwrap(), 0i32.to_ne_bytes());
    client.set_option(session, nodelay, &1i32.to_ne_bytes()).unwrap();
    assert_eq!(client.get_option(session, nodelay).unwrap(), 1i32.to_ne_bytes());
    assert!(served.nodelay().unwrap());
    let info =
        client.get_option(session, OptionName::new(libc::IPPROTO_TCP, libc::TCP_INFO)).unwrap();
    assert!(info.len() > 100 && info[0] == 1, "established");
    assert!(is_refused(
        &client.set_option(session, OptionName::new(1, 9999), &[0; 4]),
        libc::ENOPROTOOPT
    ));
    let error =
        client.get_option(session, OptionName::new(libc::SOL_SOCKET, libc::SO_ERROR)).unwrap();
    assert_eq!(error, 0i32.to_ne_bytes());
    // A lingering close would hold up the jobs behind it.
    let linger = [1i32.to_ne_bytes(), 60i32.to_ne_bytes()].concat();
    client
        .set_option(session, OptionName::new(libc::SOL_SOCKET, libc::SO_LINGER), &linger)
        .unwrap();
    client.close(session).unwrap();
}

#[test]
fn only_connected_tcp_sockets_are_taken() {
    let server = Server::start();
    let mut client = server.client();
    let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(is_refused(&client.open(unix.as_fd(), true), libc::EPROTONOSUPPORT));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(is_refused(&client.open(listener.as_fd(), true), libc::ENOTCONN));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(is_refused(&client.open(file.as_fd(), true), libc::ENOTSOCK));
    let (_plain, served) = connection();
    assert!(client.open(served.as_fd(), true).is_ok(), "it serves on");
}

#[test]
fn a_process_without_clients_ends_and_one_with_clients_stays() {
    let mut server = Server::start();
    let client = server.client();
    std::thread::sleep(Duration::from_secs(7));
    assert!(server.child.try_wait().unwrap().is_none(), "it has a client");
    drop(client);
    eventually("its end", || server.child.try_wait().unwrap().is_some());
    assert!(server.child.wait().unwrap().success());
    assert!(server.hand(&server_socket()).is_err(), "the session server sees that it is gone");
}

fn server_socket() -> OwnedFd {
    connection().0.into()
}

#[test]
fn the_death_of_the_server_ends_calls_and_leaves_the_socket() {
    let mut server = Server::start();
    let (mut plain, mut served) = connection();
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    client.send(session, b"before", soon()).unwrap();
    plain.read_exact(&mut [0; 6]).unwrap();
    let waiting = std::thread::spawn(move || {
        let error = client.receive(session, &mut [0; 8], Deadline::NEVER);
        assert!(matches!(error, Err(Error::Call(_))), "{error:?}");
        assert!(matches!(client.try_send(session, b"!"), Err(Error::Call(_))));
    });
    std::thread::sleep(Duration::from_millis(50));
    server.kill();
    waiting.join().unwrap();
    // The program has kept the socket, and goes on with the kernel.
    served.write_all(b"after").unwrap();
    let mut got = [0; 5];
    plain.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"after");
    assert!(served.as_raw_fd() >= 0 && PATIENCE > Duration::ZERO);
    let closed = server.hand(&connection().0.into());
    assert!(closed.is_err(), "{closed:?}");
    let gone = Client::connect(Address::Descriptor(connection().0.into()), Wait::Park);
    assert!(gone.is_err());
}
