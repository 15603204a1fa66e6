//! A connection is put back into its socket by a process that is killed, at each of its system
//! calls in turn. Another process goes on, and both ends have every byte once.
//!
//! The one that is killed has the connection from a record, as the carrier has; that the socket has
//! everything shows outside, as it does by the packet filter's rule. Not here: puttings back that
//! nothing disturbs (`repair`). Needs `CAP_NET_ADMIN`, and says so if it is not there.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]
#![allow(unsafe_code, reason = "fork(2) and ptrace(2)")]

mod sockets;

use sockets::{may_repair, pair};
use sojourn_carrier::{export, finish, import};
use sojourn_proto::record::{Kind, SessionRecord, TcpTuning};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

/// More system calls than a connection takes to be put back.
const CALLS_MAX: u32 = 500;
/// Bytes of the record that the program has not read, that were sent and may be lost, and that were
/// not sent: the last are more than one write takes.
const UNREAD: usize = 3_000;
const SENT: usize = 2_000;
const UNSENT: usize = 150_000;

/// The record of a session that is away, with bytes in all its queues.
fn record(socket: &TcpStream) -> SessionRecord {
    let mut record = export(socket.as_fd(), &TcpTuning::default()).unwrap();
    let Kind::Tcp(tcp) = &mut record.kind else { panic!("{record:?}") };
    let bytes = |len: usize, step: usize| (0..len).map(|at| (at / step) as u8).collect();
    tcp.receive_queue = bytes(UNREAD, 11);
    tcp.send_queue = bytes(SENT + UNSENT, 101);
    tcp.snd_nxt = tcp.snd_una.wrapping_add(SENT as u32);
    record
}

/// Returns the sizes of the socket's buffers.
fn sizes(socket: &TcpStream) -> [usize; 2] {
    let send = rustix::net::sockopt::socket_send_buffer_size(socket).unwrap();
    [send, rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap()]
}

/// How a process that puts a connection back has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It was killed before that call.
    Killed,
    /// It had made fewer calls.
    Done,
}

/// Puts the connection back in a child, which is killed at the call of that number, at its begin or
/// at its end. Returns how it has ended, and whether it had announced that the socket has
/// everything.
fn put_back_and_die(record: &SessionRecord, socket: &TcpStream, stops: u32) -> (Ended, bool) {
    let (mut announced, announces) = std::io::pipe().unwrap();
    // SAFETY: the child makes system calls and allocates, which glibc allows after a fork, and
    // never returns from here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let hear = || assert_eq!((&announces).write(b"!").unwrap(), 1);
        // SAFETY: plain numbers. The child stops by itself once the parent traces it.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        let is_put = import(record, socket.as_fd(), hear).is_ok();
        // SAFETY: nothing of the child's is needed any more.
        unsafe { libc::_exit(i32::from(!is_put)) };
    }
    drop(announces);
    let mut status = 0;
    let mut wait = || {
        // SAFETY: `status` is there for the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    };
    assert!(libc::WIFSTOPPED(wait()));
    let mut ended = Ended::Killed;
    for _ in 0..stops {
        // SAFETY: the child is a tracee of this thread, and is stopped.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, child, 0, 0) }, 0);
        let status = wait();
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0, "nothing has disturbed it");
            ended = Ended::Done;
            break;
        }
    }
    if ended == Ended::Killed {
        // SAFETY: the number is the child's, which nobody has waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        assert!(libc::WIFSIGNALED(wait()));
    }
    let mut heard = Vec::new();
    announced.read_to_end(&mut heard).unwrap();
    (ended, !heard.is_empty())
}

/// Both ends have every byte of the record once, and go on.
fn check(record: &SessionRecord, one: &mut TcpStream, other: &mut TcpStream, what: &str) {
    let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
    let expect = |from: &mut TcpStream, bytes: &[u8], whose: &str| {
        let mut found = vec![0; bytes.len()];
        from.read_exact(&mut found).unwrap_or_else(|error| panic!("{what}: {whose}: {error}"));
        assert!(found == bytes, "{what}: {whose}");
    };
    expect(one, &tcp.receive_queue, "unread bytes");
    expect(other, &tcp.send_queue, "bytes to send");
    for text in ["question", "answer"] {
        one.write_all(text.as_bytes()).unwrap();
        expect(other, text.as_bytes(), "to the peer");
        other.write_all(text.as_bytes()).unwrap();
        expect(one, text.as_bytes(), "from the peer");
    }
}

#[test]
fn what_one_has_begun_to_put_back_the_next_one_finishes() {
    if !may_repair() {
        return;
    }
    // The last is an IPv4 connection in IPv6 sockets.
    for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        let (mut before, mut after) = (0, 0);
        for stops in 1..=CALLS_MAX {
            let (mut one, mut other) = pair(address);
            let record = record(&one);
            let before_it = sizes(&one);
            let (ended, is_announced) = put_back_and_die(&record, &one, stops);
            let what = format!("{address}, killed at {stops}, announced: {is_announced}");
            let going_on = match is_announced {
                true => finish(&record, one.as_fd()),
                false => import(&record, one.as_fd(), || {}),
            };
            assert_eq!(going_on, Ok(()), "{what}");
            assert_eq!(sizes(&one), before_it, "{what}");
            check(&record, &mut one, &mut other, &what);
            match is_announced {
                true => after += 1,
                false => before += 1,
            }
            if ended == Ended::Done {
                break;
            }
            assert!(stops < CALLS_MAX, "it never ends");
        }
        println!("{address}: killed {before} times before it had announced, {after} times after");
        assert!(before > 20 && after > 5, "{before} {after}");
    }
}
