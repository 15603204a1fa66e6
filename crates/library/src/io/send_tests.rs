//! Sends that wait.

use crate::host::kernel;
use crate::io::call_flags::Send;
use crate::process::library::{OwnSession, library};
use crate::session_fakes::{Pair, common_inbox, is_away, read, write};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use rustix::io::{Errno, IoSlice};
use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};
use sojourn_session::{KindT, ReasonT};
use std::sync::mpsc;
use std::time::Instant;

/// Processor time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn one_that_waits_on_a_carried_session_sleeps_whatever_the_kernel_says_of_its_socket() {
    const LIMIT: Duration = Duration::from_millis(500);
    let pair = Pair::joined();
    pair.warm_up();
    let session = library().session_of(pair.fd(0)).unwrap();
    while write(pair.fd(0), &[0; 4096]).is_ok() {}
    session.is_nonblocking.store(false, Ordering::SeqCst);
    session.send_timeout.store(LIMIT.as_nanos() as u64, Ordering::SeqCst);
    session.transports.begin(KindT::Tcp, true);
    session.note_kernel_event();
    let (tell, told) = mpsc::channel();
    let fd = pair.fd(0);
    let writer = std::thread::spawn(move || {
        let (since, before) = (Instant::now(), used());
        let sent = write(fd, b"x");
        let _ = tell.send((sent, since.elapsed(), used() - before));
    });
    let answer = told.recv_timeout(20 * LIMIT);
    session.transports.begin(KindT::Unix, false);
    let (sent, took, busy) = answer.expect("it ends");
    writer.join().unwrap();
    assert_eq!(sent, Err(Errno::AGAIN));
    assert!(took >= LIMIT, "{took:?}");
    assert!(busy < LIMIT / 2, "{busy:?} of {took:?}");
}

#[test]
fn small_messages_to_a_unix_socket_go_whole_or_not_at_all() {
    let pair = Pair::joined();
    pair.warm_up();
    while write(pair.fd(0), &[0; 700]).is_ok() {}
    // Not even where some of it would fit.
    assert_eq!(write(pair.fd(0), &[0; 100]), Ok(100), "64 KiB are no multiple of 700");
    assert_eq!(write(pair.fd(0), &[0; 4096]), Err(Errno::AGAIN));
    // A longer message goes in pieces.
    assert!(write(pair.fd(0), &[0; 4097]).is_ok_and(|len| len < 4097));
}

#[test]
fn a_send_that_waits_for_room_goes_on_with_the_rest_of_its_buffers() {
    let pair = Pair::joined();
    pair.warm_up();
    let session = library().session_of(pair.fd(0)).unwrap();
    session.is_nonblocking.store(false, Ordering::SeqCst);
    let generation = session.generation();
    let all: Vec<u8> = (0..500_000_usize).map(|at| (at % 251) as u8).collect();
    let (first, rest) = all.split_at(100_000);
    // Many buffers lie before and behind the place where the ring is full, some of them empty.
    let pieces = first.chunks(7001).chain([&[][..]]).chain(rest.chunks(9001)).chain([&[][..]]);
    let bufs: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
    let reader = pair.fd(1);
    let wanted = all.len();
    let received = std::thread::spawn(move || {
        let (mut got, mut buf) = (Vec::new(), vec![0; 5000]);
        let deadline = Instant::now() + Duration::from_secs(20);
        while got.len() < wanted && Instant::now() < deadline {
            match read(reader, &mut buf) {
                Ok(len) => got.extend_from_slice(&buf[..len]),
                Err(_) => std::thread::yield_now(),
            }
        }
        got
    });
    let sent = session.send(generation, &bufs, Send { dont_wait: false });
    assert_eq!(sent, Some(Ok(all.len())));
    assert!(received.join().unwrap() == all, "in order");
}

/// Returns the bytes that an end has sent and the kernel at the other end has not acknowledged.
fn unacknowledged(pair: &Pair, end: usize) -> u64 {
    sojourn_shm::descriptor::output_queue(pair.ends[end].as_ref().unwrap().as_fd()).unwrap()
}

#[test]
fn an_answer_that_goes_to_the_ring_leaves_nothing_unacknowledged() {
    let pair = Pair::tcp();
    // Questions and answers: from then on the kernel waits for an answer that takes the
    // acknowledgement along.
    for _ in 0..20 {
        for end in 0..2 {
            assert_eq!(write(pair.fd(end), b"w"), Ok(1));
            await_input(&pair, 1 - end);
            assert_eq!(read(pair.fd(1 - end), &mut [0; 8]), Ok(1));
        }
    }
    kernel::acknowledge(pair.fd(0));
    let was_quick = sockopt::tcp_quickack(pair.ends[1].as_ref().unwrap());
    assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
    assert_eq!(read(pair.fd(0), &mut [0; 8]), Err(Errno::AGAIN), "it consents");
    // Past the library: it does not switch.
    rustix::io::write(pair.ends[0].as_ref().unwrap(), b"question").unwrap();
    await_input(&pair, 1);
    assert_eq!(read(pair.fd(1), &mut [0; 8]), Ok(8));
    assert_eq!(write(pair.fd(1), b"answer"), Ok(6));
    assert_eq!(library().session_of(pair.fd(1)).map(OwnSession::sends), Some(true), "to the ring");
    assert_eq!(unacknowledged(&pair, 0), 0);
    assert_eq!(sockopt::tcp_quickack(pair.ends[1].as_ref().unwrap()), was_quick);
    assert_eq!(read(pair.fd(0), &mut [0; 8]), Ok(6));
    // Now it may switch: no small segment waits in the kernel.
    assert_eq!(write(pair.fd(0), b"question"), Ok(8));
    assert_eq!(library().session_of(pair.fd(0)).map(OwnSession::sends), Some(true));
    assert_eq!(read(pair.fd(1), &mut [0; 8]), Ok(8));
}

fn await_input(pair: &Pair, end: usize) {
    let fd = kernel::at(pair.fd(end)).unwrap();
    kernel::wait(fd, PollFlags::IN, Some(crate::ready::set_fakes::LONG)).unwrap();
}

/// A session with little of a ring in use, and a lot behind it.
fn elastic() -> Pair {
    let mut pair = Pair::new();
    pair.near = 4096;
    assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
    pair.warm_up();
    pair
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Receives as much as there is, and checks it.
fn receive(fd: i32, len: usize) {
    let mut all = vec![0; len];
    let mut at = 0;
    while at < len {
        match read(fd, &mut all[at..]) {
            Ok(0) => panic!("the end after {at}"),
            Ok(got) => at += got,
            Err(error) => panic!("{error} after {at}"),
        }
    }
    assert_eq!(all, bytes(len));
    assert_eq!(read(fd, &mut [0]), Err(Errno::AGAIN));
}

#[test]
fn a_call_that_does_not_wait_takes_all_that_there_is_room_for() {
    let pair = elastic();
    for _ in 0..3 {
        assert_eq!(write(pair.fd(0), &bytes(50_000)), Ok(50_000), "by one call");
        receive(pair.fd(1), 50_000);
    }
    assert_eq!(write(pair.fd(0), &bytes(70_000)), Ok(64 << 10), "the whole ring");
    assert_eq!(write(pair.fd(0), b"x"), Err(Errno::AGAIN));
    receive(pair.fd(1), 64 << 10);
}

#[test]
fn a_call_that_may_wait_does_not_where_there_is_room_behind_the_near_part() {
    let pair = elastic();
    let session = library().session_of(pair.fd(0)).unwrap();
    session.is_nonblocking.store(false, Ordering::SeqCst);
    session.send_timeout.store(Duration::from_secs(20).as_nanos() as u64, Ordering::SeqCst);
    let since = Instant::now();
    assert_eq!(write(pair.fd(0), &bytes(60_000)), Ok(60_000));
    assert!(since.elapsed() < Duration::from_secs(10), "it waited for somebody to read");
    receive(pair.fd(1), 60_000);
}

#[test]
fn what_lies_behind_the_near_part_comes_home() {
    for leaver in 0..2 {
        let pair = elastic();
        assert_eq!(write(pair.fd(0), &bytes(60_000)), Ok(60_000));
        library().session_of(pair.fd(leaver)).unwrap().leave(ReasonT::User, false);
        if let Some(session) = library().session_of(pair.fd(1 - leaver)) {
            session.attend();
        }
        receive(pair.fd(1), 60_000);
        assert!(!is_away(pair.fd(1)));
    }
}
