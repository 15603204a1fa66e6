//! Sends that wait.

use crate::library;
use crate::session_fakes::{Pair, write};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
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
    session.is_carried.store(true, Ordering::SeqCst);
    session.stirred();
    let (tell, told) = mpsc::channel();
    let fd = pair.fd(0);
    let writer = std::thread::spawn(move || {
        let (since, before) = (Instant::now(), used());
        let sent = write(fd, b"x");
        let _ = tell.send((sent, since.elapsed(), used() - before));
    });
    let answer = told.recv_timeout(20 * LIMIT);
    session.is_carried.store(false, Ordering::SeqCst);
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
    // What is longer goes in pieces.
    assert!(write(pair.fd(0), &[0; 4097]).is_ok_and(|len| len < 4097));
}
