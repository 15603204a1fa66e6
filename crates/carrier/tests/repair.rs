//! A connection is taken out of its socket and put back, again and again, in the middle of a
//! conversation.
//!
//! Both ends are the kernel's, over loopback; nothing is sent while the session is out, so no
//! packet needs to be turned away. Needs `CAP_NET_ADMIN`, and says so if it is not there.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

mod sockets;

use sockets::{may_repair, pair};
use sojourn_carrier::{ExportError, ImportError, export, import, release};
use sojourn_lab::net::{Host, is_possible};
use sojourn_proto::record::{Kind, SessionRecord, TcpTuning};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The record, as soon as nothing is on its way.
fn settled(socket: &TcpStream) -> SessionRecord {
    let begun = Instant::now();
    loop {
        match export(socket.as_fd(), &TcpTuning::default()) {
            Ok(record) => {
                record.check().unwrap();
                return record;
            }
            Err(ExportError::Busy(_)) if begun.elapsed() < Duration::from_secs(10) => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Out of the socket.
fn out(socket: &TcpStream) -> SessionRecord {
    let mut record = settled(socket);
    release(socket.as_fd(), &mut record).unwrap();
    record.check().unwrap();
    record
}

fn say(from: &mut TcpStream, to: &mut TcpStream, text: &[u8]) {
    from.write_all(text).unwrap();
    let mut heard = vec![0; text.len()];
    to.read_exact(&mut heard).unwrap();
    assert_eq!(heard, text);
}

#[test]
fn a_conversation_goes_on_after_each_move() {
    if !may_repair() {
        return;
    }
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (mut one, mut other) = pair(address);
        for round in 0..50u32 {
            let text = vec![round as u8; 1 + round as usize * 997];
            say(&mut one, &mut other, &text);
            say(&mut other, &mut one, b"answer");
            // Not read before the move.
            other.write_all(&text).unwrap();
            let both = [out(&one), out(&other)];
            import(&both[0], one.as_fd(), || {}).unwrap();
            import(&both[1], other.as_fd(), || {}).unwrap();
            let mut heard = vec![0; text.len()];
            one.read_exact(&mut heard).unwrap();
            assert_eq!(heard, text, "{address}, round {round}");
            assert!(one.nodelay().unwrap());
        }
        drop(one);
        assert_eq!(other.read(&mut [0; 9]).unwrap(), 0, "the end is seen");
    }
}

#[test]
fn what_is_queued_to_be_sent_is_sent_after_the_move() {
    if !may_repair() {
        return;
    }
    let (one, mut other) = pair("127.0.0.1:0");
    let mut record = out(&one);
    let Kind::Tcp(tcp) = &mut record.kind else { panic!("{record:?}") };
    // More than the kernel's buffers hold, and some of it as if it had been sent and lost.
    tcp.send_queue = (0..4_000_000u32).map(|i| (i / 7) as u8).collect();
    tcp.receive_queue = (0..1_000_000u32).map(|i| (i / 5) as u8).collect();
    tcp.snd_nxt = tcp.snd_una.wrapping_add(10_000);
    let (wanted, unread) = (tcp.send_queue.clone(), tcp.receive_queue.clone());
    let sizes = |socket: &TcpStream| {
        let send = rustix::net::sockopt::socket_send_buffer_size(socket).unwrap();
        (send, rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap())
    };
    let before = sizes(&one);
    import(&record, one.as_fd(), || {}).unwrap();
    assert_eq!(sizes(&one), before);
    let mut one = one;
    let mut found = vec![0; unread.len()];
    one.read_exact(&mut found).unwrap();
    assert_eq!(found, unread);
    let mut heard = vec![0; wanted.len()];
    other.read_exact(&mut heard).unwrap();
    assert_eq!(heard, wanted);
}

/// Returns how many window probes this thread's network namespace has sent.
fn window_probes() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next().unwrap().split_whitespace();
    let mut pairs = names.zip(lines.next().unwrap().split_whitespace());
    pairs.find(|(name, _)| *name == "TCPWinProbe").unwrap().1.parse().unwrap()
}

/// A peer that waits for the acknowledgement of its last segment would repeat it after a time-out.
#[test]
fn a_socket_speaks_after_the_move_whatever_keeps_its_bytes_back() {
    if !may_repair() || !is_possible() {
        return;
    }
    let host = Host::new().unwrap();
    host.enter(|| {
        let (one, mut other) = pair("127.0.0.1:0");
        one.set_nodelay(false).unwrap();
        let mut record = out(&one);
        let Kind::Tcp(tcp) = &mut record.kind else { panic!("{record:?}") };
        // Nagle's algorithm keeps the last three back until the first five are acknowledged.
        tcp.send_queue = b"sent_not".to_vec();
        tcp.snd_nxt = tcp.snd_una.wrapping_add(5);
        let before = window_probes();
        import(&record, one.as_fd(), || {}).unwrap();
        assert_eq!(window_probes(), before + 1);
        let mut heard = [0; 8];
        other.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"sent_not");
    })
    .unwrap();
}

/// A session is put down again if there is no file for its record.
#[test]
fn an_export_alone_takes_nothing_out() {
    if !may_repair() {
        return;
    }
    let (mut one, mut other) = pair("127.0.0.1:0");
    rustix::net::sockopt::set_socket_keepalive(&one, true).unwrap();
    let text: Vec<u8> = (0..40_000u32).map(|at| (at / 3) as u8).collect();
    other.write_all(&text).unwrap();
    let mut record = settled(&one);
    let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
    assert!(tcp.receive_queue == text);
    assert!(rustix::net::sockopt::socket_keepalive(&one).unwrap());
    // Bytes that are read between the two steps are not in the record in the end.
    let mut heard = vec![0; 1000];
    one.read_exact(&mut heard).unwrap();
    assert!(heard == text[..1000]);
    assert!(release(one.as_fd(), &mut record).unwrap());
    let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
    assert!(tcp.receive_queue == text[1000..]);
    assert!(!rustix::net::sockopt::socket_keepalive(&one).unwrap());
    import(&record, one.as_fd(), || {}).unwrap();
    assert!(rustix::net::sockopt::socket_keepalive(&one).unwrap());
    let mut rest = vec![0; text.len() - 1000];
    one.read_exact(&mut rest).unwrap();
    assert!(rest == text[1000..]);
    say(&mut one, &mut other, b"still there");
}

#[test]
fn a_program_that_connects_in_the_middle_has_no_connection() {
    if !may_repair() {
        return;
    }
    let (one, _other) = pair("127.0.0.1:0");
    let record = out(&one);
    // Nobody is there, and in repair mode nobody is asked.
    let victim = std::net::SocketAddr::from(([127, 0, 0, 2], 9));
    let hostile = one.try_clone().unwrap();
    let put = import(&record, one.as_fd(), || {
        rustix::net::connect_unspec(&hostile).unwrap();
        rustix::net::connect(&hostile, &victim).unwrap();
        assert_eq!(hostile.peer_addr().unwrap(), victim);
    });
    assert_eq!(put, Err(ImportError::OtherSession));
    assert!(one.peer_addr().is_err(), "connected to {:?}", one.peer_addr());
}

#[test]
fn what_cannot_move_is_refused_and_left_alone() {
    if !may_repair() {
        return;
    }
    let (mut one, mut other) = pair("127.0.0.1:0");
    let (third, _fourth) = pair("127.0.0.1:0");
    let record = out(&one);
    assert_eq!(import(&record, third.as_fd(), || {}), Err(ImportError::OtherSession));
    say(&mut one, &mut other, b"still there");
    one.shutdown(std::net::Shutdown::Write).unwrap();
    let begun = Instant::now();
    let error = export(one.as_fd(), &TcpTuning::default());
    assert_eq!(error.unwrap_err(), ExportError::State, "{:?}", begun.elapsed());
}
