//! The steps that shorten a move's wait: what the peer's delayed acknowledgement and Nagle's
//! algorithm hold back comes without their timers.
//!
//! The kernels of both ends are this one's, in a network namespace whose counters tell whether a
//! delayed acknowledgement was sent. Needs rights over networks; skipped with a message otherwise.

use super::*;
use crate::raw;
use rustix::fd::AsFd;
use rustix::process::Uid;
use sojourn_lab::net::{Host, is_possible};
use sojourn_pump::now;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

/// Attempts: on a busy machine the timer of an acknowledgement may run out between two lines.
const ATTEMPTS: usize = 20;

/// Returns a counter of the calling thread's network namespace.
fn counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next().unwrap().split_whitespace();
    let mut pairs = names.zip(lines.next().unwrap().split_whitespace());
    pairs.find(|(one, _)| *one == name).unwrap().1.parse().unwrap()
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Asks and answers until the kernel expects that every question is answered: from then on it
/// delays its acknowledgements.
fn converse(one: &mut TcpStream, other: &mut TcpStream) {
    for _ in 0..40 {
        one.write_all(b"q").unwrap();
        other.read_exact(&mut [0]).unwrap();
        other.write_all(b"a").unwrap();
        one.read_exact(&mut [0]).unwrap();
    }
}

/// Returns true if `writes` bytes, written one by one, were acknowledged with the help of the
/// steps and without a timer.
fn is_hastened(writes: usize) -> bool {
    let (mut one, mut other) = pair();
    converse(&mut one, &mut other);
    let before = counter("DelayedACKs");
    for _ in 0..writes {
        one.write_all(b"q").unwrap();
    }
    let queue = |which| raw::queue_len(&one, which).unwrap();
    if queue(raw::SIOCOUTQ) != writes || queue(raw::SIOCOUTQNSD) != writes - 1 {
        return false;
    }
    let (mut hastening, start) = (Hastening::default(), now());
    let socket = ProgramSocket::new(one.try_clone().unwrap().into(), Uid::ROOT, channel().0);
    let mut step = |at| {
        if let Some(nudge) = hastening.step(&socket, at) {
            nudge.give(one.as_fd());
        }
    };
    step(start);
    assert_eq!(queue(raw::SIOCOUTQNSD), writes.saturating_sub(2), "at most one was kept back");
    step(start);
    step(later(start, ASK_AFTER_US));
    assert!(!one.nodelay().unwrap(), "the program's own setting stays");
    // Over loopback the answer has come by now.
    let is_acknowledged = queue(raw::SIOCOUTQ) == 0;
    is_acknowledged && counter("DelayedACKs") == before
}

#[test]
fn no_timer_of_an_acknowledgement_runs_out() {
    if !is_possible() {
        return;
    }
    let host = Host::new().unwrap();
    host.enter(|| {
        assert!((0..ATTEMPTS).any(|_| is_hastened(1)), "a lone segment");
        assert!((0..ATTEMPTS).any(|_| is_hastened(2)), "one that Nagle's algorithm keeps back");
    })
    .unwrap();
}
