//! `poll` as a program sees it, on sessions with both ends in this process.

use crate::host::epoll::bit;
use crate::host::kernel::PollFd;
use crate::process::library::library;
use crate::ready::poll_sleep::Polling;
use crate::ready::set_fakes::LONG;
use crate::session_fakes::{Pair, common_inbox, is_away, read, write};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use sojourn_shm::Deadline;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

const NOW: Option<Duration> = Some(Duration::ZERO);
const SHORT: Option<Duration> = Some(Duration::from_millis(30));

fn ask(fd: i32, events: u32) -> PollFd {
    PollFd { fd, events: events as i16, revents: 0 }
}

/// Polls; returns the number of descriptors with events, and the events of each.
fn poll(fds: &[(i32, u32)], limit: Option<Duration>) -> (usize, Vec<u32>) {
    let mut fds: Vec<PollFd> = fds.iter().map(|(fd, events)| ask(*fd, *events)).collect();
    let found = library().poll(&mut fds, limit, None).unwrap();
    (found, fds.iter().map(|fd| u32::from(fd.revents as u16)).collect())
}

#[test]
fn rings_and_kernel_are_looked_at_together() {
    let pair = Pair::joined();
    pair.warm_up();
    let (mut near, far) = UnixStream::pair().unwrap();
    let asked = [
        (pair.fd(0), bit::IN | bit::OUT),
        (-1, bit::IN),
        (far.as_raw_fd(), bit::IN),
        (pair.fd(1), bit::IN),
        (1_000_000, bit::IN),
    ];
    assert_eq!(poll(&asked, NOW), (2, vec![bit::OUT, 0, 0, 0, bit::NVAL]));
    near.write_all(b"x").unwrap();
    write(pair.fd(1), b"hello").unwrap();
    let all = vec![bit::IN | bit::OUT, 0, bit::IN, 0, bit::NVAL];
    assert_eq!(poll(&asked, Some(LONG)), (3, all));
    assert!(is_away(pair.fd(0)) && is_away(pair.fd(1)));
}

/// The session joins when the call has found the places of its sleep: nobody posts elsewhere.
#[test]
fn no_session_consents_once_a_poll_has_found_its_places() {
    let pair = Pair::new();
    let (fds, deadline) = (&mut [ask(pair.fd(0), bit::IN)], Deadline::after(LONG));
    let polling = Polling { library: library(), fds, deadline, mask: None, must_ask: false };
    polling.counted_places();
    assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
    let has_consent = || {
        let session = library().session_of(pair.fd(1)).unwrap();
        session.stream().unwrap().has_consent()
    };
    assert!(!has_consent());
    library().count_polled(polling.fds, false);
    pair.warm_up();
    assert!(has_consent());
}

/// An event that came through the kernel is in the same round as one that came later through a
/// ring.
#[test]
fn what_the_kernel_had_before_is_never_missing() {
    let pair = Pair::joined();
    pair.warm_up();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let (ends, told) = ([pair.fd(0), pair.fd(1)], AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..5_000 {
                near.write_all(b"x").unwrap();
                write(ends[1], b"y").unwrap();
                while told.load(Ordering::SeqCst) <= round {
                    thread::yield_now();
                }
            }
        });
        let asked = [(far.as_raw_fd(), bit::IN), (ends[0], bit::IN)];
        let mut buf = [0];
        for round in 0..5_000 {
            let mut said = poll(&asked, Some(LONG)).1;
            if said[1] == 0 {
                said[1] = poll(&asked[1..], Some(LONG)).1[0];
            }
            assert_eq!(said, [bit::IN, bit::IN], "round {round}");
            far.read_exact(&mut buf).unwrap();
            assert_eq!(read(ends[0], &mut buf), Ok(1));
            told.fetch_add(1, Ordering::SeqCst);
        }
    });
}

#[test]
fn of_one_that_went_home_meanwhile_no_more_is_said_than_was_asked() {
    let (near, _far) = UnixStream::pair().unwrap();
    let mut fds = [ask(near.as_raw_fd(), bit::RDHUP)];
    let deadline = sojourn_shm::Deadline::NOW;
    let library = library();
    let mut polling = Polling { library, fds: &mut fds, deadline, mask: None, must_ask: false };
    let said = (bit::IN | bit::RDHUP | bit::HUP) as i16;
    let kernel = [PollFd { fd: near.as_raw_fd(), events: 0, revents: said }];
    assert_eq!(polling.merge(&kernel), 1);
    assert_eq!(u32::from(fds[0].revents as u16), bit::RDHUP | bit::HUP);
}

#[test]
fn bytes_that_come_through_the_kernel_before_the_switch_are_seen() {
    let pair = Pair::joined();
    assert_eq!(poll(&[(pair.fd(0), bit::IN), (-1, 0)], NOW).0, 0);
    assert_eq!(poll(&[(pair.fd(0), bit::IN)], SHORT).0, 0);
    // By a way the library does not see, so that it does not switch.
    rustix::io::write(pair.ends[1].as_ref().unwrap(), b"x").unwrap();
    assert_eq!(poll(&[(pair.fd(0), bit::IN), (-1, 0)], Some(LONG)).1[0], bit::IN);
    assert_eq!(poll(&[(pair.fd(0), bit::IN)], Some(LONG)).1[0], bit::IN);
    assert_eq!(poll(&[(pair.fd(0), bit::OUT)], NOW).1[0], bit::OUT, "the kernel decides");
}

#[test]
fn bytes_that_a_read_has_left_in_the_kernel_are_seen() {
    let pair = Pair::joined();
    let one = [(pair.fd(0), bit::IN)];
    rustix::io::write(pair.ends[1].as_ref().unwrap(), b"abc").unwrap();
    assert_eq!(poll(&[one[0], (-1, 0)], Some(LONG)).1[0], bit::IN);
    assert_eq!(read(pair.fd(0), &mut [0; 1]), Ok(1));
    let since = Instant::now();
    assert_eq!(poll(&one, Some(LONG)).1[0], bit::IN);
    assert!(since.elapsed() < LONG / 2, "it was there all the time, and nothing else arrives");
    assert_eq!(read(pair.fd(0), &mut [0; 8]), Ok(2));
    assert_eq!(poll(&one, SHORT).0, 0);
}

#[test]
fn timeouts_last_as_long_as_they_say() {
    let pair = Pair::joined();
    pair.warm_up();
    let one = [(pair.fd(0), bit::IN)];
    let two = [(pair.fd(0), bit::IN), (pair.fd(1), bit::IN)];
    for asked in [&one[..], &two[..], &[][..]] {
        let start = Instant::now();
        assert_eq!(poll(asked, SHORT).0, 0);
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert_eq!(poll(asked, NOW).0, 0);
        let mut fds: Vec<PollFd> = asked.iter().map(|(fd, events)| ask(*fd, *events)).collect();
        let start = Instant::now();
        assert_eq!(library().poll(&mut fds, SHORT, Some(0)), Ok(0));
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}

#[test]
fn a_sleeper_is_woken_by_whatever_comes() {
    let pair = Pair::joined();
    pair.warm_up();
    let (mut near, far) = UnixStream::pair().unwrap();
    let asked = [(pair.fd(0), bit::IN), (far.as_raw_fd(), bit::IN)];
    for by_session in [true, false] {
        let found = thread::scope(|scope| {
            let sleeper = scope.spawn(|| poll(&asked, Some(LONG)));
            thread::sleep(Duration::from_millis(20));
            if by_session {
                write(pair.fd(1), b"x").unwrap();
            } else {
                near.write_all(b"x").unwrap();
            }
            sleeper.join().unwrap()
        });
        assert_eq!(found.0, 1);
        assert_eq!(found.1[usize::from(!by_session)], bit::IN);
        if by_session {
            read(pair.fd(0), &mut [0; 9]).unwrap();
        }
    }
    let found = thread::scope(|scope| {
        let sleeper = scope.spawn(|| poll(&asked[..1], Some(LONG)));
        thread::sleep(Duration::from_millis(20));
        write(pair.fd(1), b"x").unwrap();
        sleeper.join().unwrap()
    });
    assert_eq!(found, (1, vec![bit::IN]));
    assert!(is_away(pair.fd(0)));
}

#[test]
fn room_is_waited_for() {
    let pair = Pair::joined();
    pair.warm_up();
    let block = [7; 10_000];
    while write(pair.fd(0), &block).is_ok() {}
    let asked = [(pair.fd(0), bit::OUT), (pair.fd(0), bit::IN)];
    assert_eq!(poll(&asked, SHORT), (0, vec![0, 0]), "the kernel's buffer is empty");
    assert_eq!(poll(&asked[..1], SHORT), (0, vec![0]));
    for asked in [&asked[..], &asked[..1]] {
        while write(pair.fd(0), &block).is_ok() {}
        let found = thread::scope(|scope| {
            let sleeper = scope.spawn(|| poll(asked, Some(LONG)));
            thread::sleep(Duration::from_millis(20));
            while read(pair.fd(1), &mut [0; 30_000]).is_ok() {}
            sleeper.join().unwrap()
        });
        assert_eq!((found.0, found.1[0]), (1, bit::OUT));
    }
}

#[test]
fn the_end_of_the_peer_is_seen() {
    let mut pair = Pair::joined();
    pair.warm_up();
    let fd = pair.fd(0);
    let asked = [(fd, bit::IN | bit::RDHUP), (-1, 0)];
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| poll(&asked, Some(LONG)));
        thread::sleep(Duration::from_millis(20));
        pair.close(1);
        let (found, said) = sleeper.join().unwrap();
        assert_eq!(found, 1);
        assert_eq!(said[0] & bit::RDHUP, bit::RDHUP);
    });
    assert_eq!(read(fd, &mut [0; 9]), Ok(0));
}

#[test]
fn a_peer_that_goes_home_is_no_input() {
    let pair = Pair::joined();
    pair.warm_up();
    let asked = [(pair.fd(0), bit::IN), (-1, 0)];
    library().go_home(pair.fd(1), sojourn_session::ReasonT::User, false);
    assert_eq!(poll(&asked, SHORT).0, 0);
    assert!(!is_away(pair.fd(0)));
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(poll(&asked, Some(LONG)).1[0], bit::IN);
}

/// Threads that sleep on one inbox, each for sessions of its own: nobody's wake-up may be lost to
/// another.
#[test]
fn sleepers_do_not_take_each_others_wake_ups() {
    const THREADS: usize = 3;
    const ROUNDS: u32 = 3000;
    let pairs: Vec<[Pair; 2]> = (0..THREADS).map(|_| [Pair::joined(), Pair::joined()]).collect();
    for pair in pairs.iter().flatten() {
        pair.warm_up();
    }
    thread::scope(|scope| {
        for pairs in &pairs {
            // One thread answers, the other asks, in turns on two sessions.
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let asked = [(pairs[0].fd(0), bit::IN), (pairs[1].fd(0), bit::IN)];
                    let (found, said) = poll(&asked, Some(LONG));
                    assert!(found > 0, "left asleep");
                    for (at, _) in said.iter().enumerate().filter(|(_, said)| **said != 0) {
                        let mut byte = [0];
                        assert_eq!(read(pairs[at].fd(0), &mut byte), Ok(1));
                        assert_eq!(write(pairs[at].fd(0), &byte), Ok(1));
                    }
                }
            });
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let fd = pairs[round as usize % 2].fd(1);
                    assert_eq!(write(fd, &[round as u8]), Ok(1));
                    // Two descriptors, so that this one sleeps on the inbox as well.
                    let (found, _) = poll(&[(fd, bit::IN), (fd, bit::RDHUP)], Some(LONG));
                    assert!(found > 0, "left asleep in round {round}");
                    let mut byte = [0];
                    assert_eq!(read(fd, &mut byte), Ok(1));
                    assert_eq!(byte[0], round as u8);
                }
            });
        }
    });
}

#[test]
fn one_descriptor_alone_is_served_by_its_own_bell() {
    const ROUNDS: u32 = 20_000;
    let pair = Pair::joined();
    pair.warm_up();
    thread::scope(|scope| {
        for end in 0..2 {
            let fd = pair.fd(end);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    if end == 0 {
                        assert_eq!(write(fd, b"x"), Ok(1));
                    }
                    assert_eq!(poll(&[(fd, bit::IN)], Some(LONG)), (1, vec![bit::IN]));
                    assert_eq!(read(fd, &mut [0; 9]), Ok(1));
                    if end == 1 {
                        assert_eq!(write(fd, b"x"), Ok(1));
                    }
                }
            });
        }
    });
    assert!(is_away(pair.fd(0)));
}
