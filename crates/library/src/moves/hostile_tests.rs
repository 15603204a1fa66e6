//! Peers that write anything into the shared region at any time, stop, or keep silent: no call
//! waits that must not, every loop ends, and an answer that was given stays true.
//!
//! The peer of each session here is the test itself, which has the region's memory. Not here: the
//! view of real programs on such a peer (`tests/system`).

use crate::host::epoll::bit;
use crate::host::epoll::op;
use crate::io::call_flags::Recv;
use crate::process::library::library;
use crate::ready::set_fakes::{LONG, World};
use crate::session_fakes::{Hostile, Pair, is_away, read, receive, write};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use sojourn_session::ReasonT;
use sojourn_shm::wait::Wait;
use sojourn_stream::CONTROL_BYTES;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

/// The places of the rings' words in the region: each ring has lines of 128 bytes for tail, head,
/// reader, writer.
const LINE: usize = 128;
const RING: usize = 4 * LINE;
const OUT_TAIL: usize = 0;
const OUT_HEAD: usize = LINE;
const IN_TAIL: usize = RING;
/// The state of its flush that the writer of the in-ring writes: behind bell and want.
const IN_FLUSHED: usize = RING + 3 * LINE + 16;
const FROZEN: u64 = 1 << 63;
const BEGUN: u64 = 1 << 61;

/// Ends the process if a test hangs.
fn watchdog(seconds: u64) -> impl Drop {
    struct Guard(std::sync::mpsc::Sender<()>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let name = thread::current().name().unwrap_or("a test").to_owned();
    thread::spawn(move || {
        let limit = Duration::from_secs(seconds);
        if receiver.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("watchdog: {name} has not ended after {seconds} s");
            std::process::abort();
        }
    });
    Guard(sender)
}

/// Numbers that look random, the same for the same seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end.max(1)
    }
}

fn byte(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(byte).collect()
}

fn peek(fd: i32, buf: &mut [u8]) -> Result<usize, Errno> {
    receive(fd, buf, Recv { peek: true, ..Recv::default() })
}

/// Bytes that `FIONREAD` says of a session.
fn input_queue(fd: i32) -> usize {
    library().session_of(fd).map_or(0, |session| session.input_queue())
}

/// A session whose peer has switched, has consented, and has sent `bytes`, of which the program has
/// read the first.
fn warm(pair: &Pair, bytes: &[u8]) -> Hostile {
    let peer = pair.join_hostile();
    peer.sends(b"w");
    assert_eq!(read(pair.fd(0), &mut [0; 8]), Ok(1));
    assert_eq!(peer.side.write(&[std::io::IoSlice::new(bytes)], 0), Ok(bytes.len()));
    peer
}

/// Writes words of the control page and bytes of the peer's ring until it is over.
fn scribble(peer: &Hostile, random: &mut Random, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let at = match random.below(8) {
            0 => OUT_HEAD,
            1 => OUT_TAIL,
            2 => IN_TAIL,
            3 => IN_FLUSHED,
            4 => CONTROL_BYTES + 64 * 1024 + random.below(8192) as usize * 8,
            _ => random.below(CONTROL_BYTES as u64 / 8) as usize * 8,
        };
        let near = random.below(40_000);
        let value = match random.below(9) {
            0 => random.next(),
            1 | 2 => near | FROZEN,
            3 => near | FROZEN | BEGUN << 1,
            4 => near | BEGUN,
            5 => 0,
            _ => near,
        };
        peer.set(at, value);
    }
}

/// One call of the honest program. How many bytes it has written.
fn act(fd: i32, written: usize, random: &mut Random) -> usize {
    let mut buf = [0; 6000];
    let len = random.below(6000) as usize;
    match random.below(8) {
        0..3 => return write(fd, &bytes(written, len)).unwrap_or(0),
        3 => drop(read(fd, &mut buf[..len])),
        4 => drop(peek(fd, &mut buf[..len])),
        5 => drop(input_queue(fd)),
        _ => {
            let mut polled = [crate::PollFd { fd, events: 5, revents: 0 }];
            let wait = Duration::from_millis(random.below(3));
            assert!(library().poll(&mut polled, Some(wait), None).is_ok());
        }
    }
    0
}

/// All that the kernel has at that end.
fn drain(end: &OwnedFd) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), vec![0; 65536]);
    while let Ok(len @ 1..) = rustix::io::read(end, &mut buf) {
        all.extend_from_slice(&buf[..len]);
    }
    all
}

/// A program works against a peer that writes everywhere, and ends its session in one of several
/// ways.
fn work(seed: u64, pair: &mut Pair) {
    let mut random = Random(seed);
    // A third of the programs wait, with a time limit.
    if seed.is_multiple_of(3) {
        let end = pair.ends[0].as_ref().unwrap();
        let limit = Some(Duration::from_millis(5));
        sockopt::set_socket_timeout(end, sockopt::Timeout::Recv, limit).unwrap();
        sockopt::set_socket_timeout(end, sockopt::Timeout::Send, limit).unwrap();
        rustix::io::ioctl_fionbio(end, false).unwrap();
    }
    let peer = pair.join_hostile();
    peer.sends(&bytes(0, 3000));
    let (fd, is_over, mut written) = (pair.fd(0), AtomicBool::new(false), 0);
    let mut words = Random(seed + 1000);
    thread::scope(|scope| {
        scope.spawn(|| scribble(&peer, &mut words, &is_over));
        for _ in 0..40 {
            written += act(fd, written, &mut random);
        }
        match random.below(4) {
            0 => library().go_home(fd, ReasonT::Operation, false),
            1 => library().shutting(fd, random.below(2) == 0),
            2 => library().go_home_together(&[fd], ReasonT::Exec),
            _ => {}
        }
        written += act(fd, written, &mut random);
        pair.close(0);
        is_over.store(true, Ordering::Relaxed);
    });
    let (got, all) = (drain(pair.ends[1].as_ref().unwrap()), bytes(0, written));
    assert!(is_of(&got, &all), "{seed}: {} bytes that are not of the {written}", got.len());
}

/// Returns true if these bytes are some of all that were written, in order: first those that went
/// to the kernel before the ring was used, and then, from some byte on, those that followed. (If
/// nobody reads, the kernel does not take all of them.)
fn is_of(got: &[u8], all: &[u8]) -> bool {
    let same = got.iter().zip(all).take_while(|(got, written)| got == written).count();
    // The bytes may go on by chance as they would have done in the kernel.
    (0..=same).rev().take(8).any(|first| {
        let rest = &got[first..];
        rest.is_empty() || all[first..].windows(rest.len()).any(|some| some == rest)
    })
}

#[test]
fn every_call_ends_whatever_the_peer_writes() {
    let _guard = watchdog(120);
    for seed in 1..60 {
        work(seed, &mut if seed % 2 == 0 { Pair::new() } else { Pair::tcp() });
    }
}

/// The positions of a frozen ring are looked at once: the bytes that are sent are those that this
/// program has written, and there is an end to them.
#[test]
fn a_peer_that_moves_frozen_positions_gets_no_other_bytes() {
    let _guard = watchdog(60);
    for head in [0, 1, 500, 999, 1000, 1001, 1 << 40] {
        for tail in [0, 1000, 60_000] {
            let mut pair = Pair::new();
            let peer = warm(&pair, b"");
            assert_eq!(write(pair.fd(0), &bytes(0, 1000)), Ok(1000));
            let is_over = AtomicBool::new(false);
            let freeze = |head| {
                peer.set(OUT_TAIL, tail | FROZEN);
                peer.set(OUT_HEAD, head | FROZEN);
            };
            freeze(head);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        freeze(0);
                        freeze(head);
                    }
                });
                pair.close(0);
                is_over.store(true, Ordering::Relaxed);
            });
            let got = drain(pair.ends[1].as_ref().unwrap());
            assert!(got.len() <= 1000 && got == bytes(1000 - got.len(), got.len()));
        }
    }
}

/// How long so many calls take, each of which must not wait.
fn time_of(calls: u32, mut call: impl FnMut()) -> Duration {
    let begun = Instant::now();
    (0..calls).for_each(|_| call());
    begun.elapsed()
}

#[test]
fn what_a_stopped_peer_had_sent_is_read_at_once() {
    let _guard = watchdog(60);
    let pair = Pair::new();
    let peer = warm(&pair, b"hello");
    // The peer's process is stopped here: nobody puts the bytes that are owed into the kernel.
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::User, false);
    assert_eq!(input_queue(pair.fd(0)), 5);
    let mut polled = [crate::PollFd { fd: pair.fd(0), events: 1, revents: 0 }];
    assert_eq!(library().poll(&mut polled, Some(Duration::ZERO), None), Ok(1));
    let mut buf = [0; 2];
    assert_eq!((read(pair.fd(0), &mut buf), &buf), (Ok(2), b"he"));
    // The peer goes on: bytes that were read from the ring do not come again.
    assert_eq!(peer.side.begin_flush(), 2);
    rustix::io::write(pair.ends[1].as_ref().unwrap(), b"llo").unwrap();
    peer.side.set_flushed(5);
    let mut buf = [0; 9];
    assert_eq!((read(pair.fd(0), &mut buf), &buf[..3]), (Ok(3), &b"llo"[..]));
    assert_eq!(read(pair.fd(0), &mut buf), Err(Errno::AGAIN));
    assert!(!is_away(pair.fd(0)));
}

#[test]
fn a_call_that_must_not_wait_does_not_wait_for_what_a_peer_owes() {
    let _guard = watchdog(60);
    let pair = Pair::new();
    let peer = warm(&pair, b"hello");
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::User, false);
    // The peer is stopped in the middle of that, or lies.
    peer.side.begin_flush();
    let took = time_of(200, || assert_eq!(read(pair.fd(0), &mut [0; 9]), Err(Errno::AGAIN)));
    assert!(took < Duration::from_secs(2), "{took:?}");
    let mut polled = [crate::PollFd { fd: pair.fd(0), events: 1, revents: 0 }];
    let mut poll = || assert_eq!(library().poll(&mut polled, Some(Duration::ZERO), None), Ok(0));
    let took = time_of(200, &mut poll);
    assert!(took < Duration::from_secs(2), "{took:?}");
    // It says that four are in the kernel, where none is.
    peer.side.set_flushed(4);
    let took = time_of(200, || assert_eq!(read(pair.fd(0), &mut [0; 9]), Err(Errno::AGAIN)));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_call_with_a_time_limit_ends_though_the_peer_says_that_bytes_are_there() {
    let _guard = watchdog(60);
    let pair = Pair::new();
    let end = pair.ends[0].as_ref().unwrap();
    let limit = Some(Duration::from_millis(30));
    sockopt::set_socket_timeout(end, sockopt::Timeout::Recv, limit).unwrap();
    rustix::io::ioctl_fionbio(end, false).unwrap();
    let peer = warm(&pair, b"hello");
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::User, false);
    peer.side.set_flushed(4);
    assert_eq!(read(pair.fd(0), &mut [0; 9]), Err(Errno::AGAIN));
}

#[test]
fn many_silent_peers_hold_up_an_exec_no_longer_than_one() {
    let _guard = watchdog(60);
    let all: Vec<(Pair, Hostile)> = (0..20)
        .map(|_| {
            let pair = Pair::new();
            let peer = warm(&pair, b"owed");
            rustix::io::fcntl_setfd(pair.ends[0].as_ref().unwrap(), rustix::io::FdFlags::empty())
                .unwrap();
            (pair, peer)
        })
        .collect();
    let fds: Vec<i32> = all.iter().map(|(pair, _)| pair.fd(0)).collect();
    let begun = Instant::now();
    library().go_home_together(&fds, ReasonT::Exec);
    fds.iter().for_each(|fd| library().go_home(*fd, ReasonT::Operation, false));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn what_was_peeked_at_is_what_is_received() {
    let _guard = watchdog(60);
    let pair = Pair::new();
    let peer = warm(&pair, b"length 4");
    let mut buf = [0; 8];
    assert_eq!((peek(pair.fd(0), &mut buf), &buf), (Ok(8), b"length 4"));
    peer.rewrites(b"length 9");
    assert_eq!((peek(pair.fd(0), &mut buf), &buf), (Ok(8), b"length 4"));
    let mut buf = [0; 3];
    assert_eq!((read(pair.fd(0), &mut buf), &buf), (Ok(3), b"len"));
    // The session goes home meanwhile, and the peer puts something else into the kernel.
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::User, false);
    assert_eq!(peer.side.begin_flush(), 0);
    rustix::io::write(pair.ends[1].as_ref().unwrap(), b"XXXXXX").unwrap();
    peer.side.set_flushed(5);
    let mut buf = [0; 9];
    assert_eq!((peek(pair.fd(0), &mut buf), &buf[..6]), (Ok(6), &b"gth 4X"[..]));
    assert_eq!((read(pair.fd(0), &mut buf), &buf[..6]), (Ok(6), &b"gth 4X"[..]));
    assert_eq!(read(pair.fd(0), &mut buf), Err(Errno::AGAIN));
    assert!(!is_away(pair.fd(0)));
}

#[test]
fn what_was_counted_is_received_though_the_peer_takes_it_back() {
    let _guard = watchdog(60);
    for frozen in [0, FROZEN] {
        let pair = Pair::new();
        let peer = warm(&pair, b"hello");
        assert_eq!(input_queue(pair.fd(0)), 5);
        peer.set(IN_TAIL, 1 | frozen);
        let mut buf = [0; 9];
        assert_eq!((read(pair.fd(0), &mut buf), &buf[..5]), (Ok(5), &b"hello"[..]));
        assert_eq!(read(pair.fd(0), &mut buf), Err(Errno::AGAIN));
        assert!(!is_away(pair.fd(0)), "it is the kernel's: {frozen}");
    }
}

/// Bits that mean nothing, set as fast as they are looked at, keep nobody from the other members of
/// the set.
#[test]
fn a_flood_of_bits_hides_nothing_of_the_kernels() {
    let _guard = watchdog(60);
    for wait in [Wait::Park, Wait::Spin(Some(Duration::from_micros(50)))] {
        let world = World::joined(1, wait, bit::IN);
        let (mut near, far) = UnixStream::pair().unwrap();
        world.control_fd(op::ADD, far.as_raw_fd(), (bit::IN, 100)).unwrap();
        assert_eq!(world.now(), []);
        world.is_flooded.store(true, Ordering::SeqCst);
        near.write_all(b"x").unwrap();
        assert_eq!(world.wait(8, Some(LONG), None), Ok(vec![(bit::IN, 100)]));
        // And a time limit is one.
        let mut byte = [0];
        (&far).read_exact(&mut byte).unwrap();
        assert_eq!(world.wait(8, Some(Duration::from_millis(5)), None), Ok(vec![]));
    }
}
