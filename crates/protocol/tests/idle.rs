//! Sockets that poll(2) calls ready for ever, while nobody can be answered: the watcher looks at
//! them again and again, but not without a pause.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "options that no safe wrapper has")]

mod common;

use common::{PATIENCE, Server, connection, datagrams, eventually, soon};
use rustix::fd::{AsFd, AsRawFd};
use sojourn_protocol::{Client, Deadline, OpenedSession, Session};
use std::io::Write;
use std::time::Duration;

/// Looks at the watcher's state, and the pause between two.
const LOOKS: usize = 40;
const PAUSE: Duration = Duration::from_millis(10);
/// How long a receive waits: longer than the test.
const LONG: Duration = Duration::from_secs(100);

fn set(socket: &impl AsRawFd, level: i32, name: i32, value: i32) {
    // SAFETY: the kernel reads `value`.
    let done = unsafe {
        let len = size_of_val(&value) as u32;
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Tells if the watcher's thread sleeps at this moment.
fn sleeps(server: &Server) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let stats = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")));
    let mut watcher = stats.map(Result::unwrap).filter(|stat| stat.contains("(watcher)"));
    watcher.next().unwrap().rsplit(") ").next().unwrap().starts_with('S')
}

/// Waits until the watcher sleeps at nearly every look. One that never sleeps never shows it,
/// however many others have the processors.
fn await_rest(what: &str, server: &Server) {
    let look = || {
        std::thread::sleep(PAUSE);
        sleeps(server)
    };
    eventually(what, || (0..LOOKS).filter(|_| look()).count() > LOOKS * 3 / 4);
}

/// Has the client wait for bytes that do not come.
fn waits(mut client: Client, session: Session) {
    let receive = move || client.receive(session, &mut [0; 64], Deadline::after(LONG));
    std::thread::spawn(receive);
}

/// Waits until the receive of another thread is in the session's queue, or would be.
fn await_call() {
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn bytes_before_the_offset_of_a_peek() {
    let server = Server::start();
    let (mut plain, served) = connection();
    let mut client = server.client();
    let OpenedSession { session, token } = client.open(served.as_fd(), true).unwrap();
    // With a second client bytes are peeked at.
    let mut other = server.client();
    let number = other.attach(&token).unwrap();
    waits(other, number);
    await_call();
    set(&served, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 100);
    plain.write_all(b"bytes").unwrap();
    await_rest("bytes that no peek finds", &server);
    // What can be had is had.
    set(&served, libc::SOL_SOCKET, libc::SO_PEEK_OFF, -1);
    assert!(client.send(session, b"on", soon()).is_ok());
}

#[test]
fn time_stamps_that_nobody_takes() {
    let server = Server::start();
    let (mut plain, served) = connection();
    let mut client = server.client();
    let OpenedSession { session, token } = client.open(served.as_fd(), true).unwrap();
    // SOF_TIMESTAMPING_TX_SOFTWARE, _SOFTWARE, _OPT_TSONLY.
    set(&served, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 2 | 16 | 2048);
    client.send(session, b"stamped", soon()).unwrap();
    let mut other = server.client();
    let number = other.attach(&token).unwrap();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 64];
        let len = other.receive(number, &mut buffer, Deadline::after(PATIENCE)).unwrap();
        buffer[..len].to_vec()
    });
    await_call();
    await_rest("an error queue", &server);
    plain.write_all(b"late").unwrap();
    assert_eq!(reader.join().unwrap(), b"late");
}

#[test]
fn errors_of_datagrams_that_nobody_takes() {
    let server = Server::start();
    let (plain, served) = datagrams();
    set(&served, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    let mut client = server.client();
    let OpenedSession { session, .. } = client.open(served.as_fd(), true).unwrap();
    drop(plain);
    client.send_to(session, b"to nobody", None).unwrap();
    let mut buffer = [0; 64];
    // The refusal is told once, and stays in the error queue.
    eventually(
        "refused",
        || matches!(client.try_receive_from(session, &mut buffer), Err(error) if !error.would_block()),
    );
    std::thread::spawn(move || {
        client.receive_from(session, &mut [0; 64], Deadline::after(LONG)).map(drop)
    });
    await_call();
    await_rest("an error queue", &server);
}
