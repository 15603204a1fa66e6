//! Bytes and room that are lent, on sessions with both ends in this process, and with a hostile
//! peer.
//!
//! Not here: the program's view (`sojourn-buffers`, and `tests/system`).

#![allow(unsafe_code, reason = "lent memory is reached by pointers, as programs reach it")]

use crate::io::calls::Route;
use crate::io::lend::{Amount, Lending, Lent, LentPiece};
use crate::process::library::library;
use crate::session_fakes::{Pair, is_away, read, write};
use rustix::io::Errno;
use sojourn_session::ReasonT;
use sojourn_shm::Deadline;
use std::time::Duration;

/// Lent memory, as a shell hands it out.
struct Memory {
    lent: Lent,
    pieces: [LentPiece; 2],
}

impl Memory {
    fn of(lending: Lending) -> Option<Self> {
        match lending {
            Lending::Lent(lent, pieces) => Some(Self { lent, pieces }),
            _ => None,
        }
    }

    fn put(&self, bytes: &[u8]) {
        let len = bytes.len().min(self.pieces[0].len);
        // SAFETY: lent, and as long.
        unsafe { self.pieces[0].at.copy_from(bytes.as_ptr(), len) };
    }

    fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in self.pieces.iter().filter(|piece| piece.len > 0) {
            // SAFETY: lent, and nobody writes there in these tests.
            all.extend_from_slice(unsafe { core::slice::from_raw_parts(piece.at, piece.len) });
        }
        all
    }
}

fn amount(at_least: usize, max: usize) -> Amount {
    Amount { at_least, max }
}

fn loan(fd: i32, at_least: usize, max: usize) -> Lending {
    let Route::Stream(call) = library().reading(fd) else { return Lending::Elsewhere };
    call.loan(amount(at_least, max), Deadline::NOW)
}

fn reserve(fd: i32, at_least: usize, max: usize) -> Lending {
    let Route::Stream(call) = library().writing(fd) else { return Lending::Elsewhere };
    call.reserve(amount(at_least, max), Deadline::NOW)
}

fn pair() -> Pair {
    let pair = Pair::joined();
    pair.warm_up();
    pair
}

#[test]
fn the_peer_sees_what_was_committed_and_no_more() {
    let pair = pair();
    let space = Memory::of(reserve(pair.fd(0), 4, 100)).unwrap();
    assert_eq!(space.pieces[0].len, 100);
    space.put(b"abcdef");
    assert!(matches!(loan(pair.fd(1), 1, 10), Lending::TimedOut), "nothing is committed");
    assert!(space.lent.commit(library(), 4).is_none());
    let loan = Memory::of(loan(pair.fd(1), 1, 10)).unwrap();
    assert_eq!(loan.bytes(), b"abcd");
    assert!(loan.lent.give_back(library(), 3));
    assert_eq!(read(pair.fd(1), &mut [0; 9]), Ok(1), "one byte was not used up");
}

#[test]
fn while_memory_is_lent_other_calls_find_no_bytes_and_no_room() {
    let pair = pair();
    assert_eq!(write(pair.fd(0), b"abc"), Ok(3));
    let bytes = Memory::of(loan(pair.fd(1), 1, 9)).unwrap();
    assert_eq!(read(pair.fd(1), &mut [0; 9]), Err(Errno::AGAIN));
    assert!(matches!(loan(pair.fd(1), 1, 9), Lending::Elsewhere));
    assert!(bytes.lent.give_back(library(), 0));
    let mut buf = [0; 9];
    assert_eq!(read(pair.fd(1), &mut buf), Ok(3));

    let space = Memory::of(reserve(pair.fd(0), 1, 9)).unwrap();
    space.put(b"xyz");
    assert_eq!(write(pair.fd(0), b"abc"), Err(Errno::AGAIN));
    assert!(matches!(reserve(pair.fd(0), 1, 9), Lending::Elsewhere));
    assert!(space.lent.commit(library(), 3).is_none());
    assert_eq!(write(pair.fd(0), b"abc"), Ok(3));
    assert_eq!(read(pair.fd(1), &mut buf), Ok(6));
    assert_eq!(&buf[..6], b"xyzabc");
    Memory::of(reserve(pair.fd(0), 1, 9)).unwrap().lent.forget(library());
    assert_eq!(write(pair.fd(0), b"d"), Ok(1), "room that is forgotten is there again");
}

#[test]
fn too_much_for_the_ring_is_for_an_ordinary_call() {
    let pair = pair();
    assert!(matches!(reserve(pair.fd(0), 1 << 20, 1 << 20), Lending::Elsewhere));
    assert_eq!(write(pair.fd(0), b"abc"), Ok(3));
    assert!(matches!(loan(pair.fd(1), 4, 9), Lending::Elsewhere));
    while write(pair.fd(0), &[0; 4096]).is_ok() {}
    assert!(matches!(reserve(pair.fd(0), 40_000, 60_000), Lending::TimedOut));
}

#[test]
fn memory_goes_on_at_the_beginning_of_the_ring() {
    let pair = pair();
    let mut had_two = 0;
    let mut next = 0u8;
    for _ in 0..40 {
        let space = Memory::of(reserve(pair.fd(0), 9000, 9000)).unwrap();
        let bytes: Vec<u8> = (0..9000).map(|at| next.wrapping_add(at as u8)).collect();
        let [first, second] = space.pieces;
        assert_eq!(first.len + second.len, 9000);
        // SAFETY: lent, and together as long.
        unsafe {
            first.at.copy_from(bytes.as_ptr(), first.len);
            if second.len > 0 {
                second.at.copy_from(bytes[first.len..].as_ptr(), second.len);
            }
        }
        had_two += usize::from(second.len > 0);
        assert!(space.lent.commit(library(), 9000).is_none());
        let loan = Memory::of(loan(pair.fd(1), 9000, 9000)).unwrap();
        assert!(loan.bytes() == bytes);
        assert!(loan.lent.give_back(library(), 9000));
        next = next.wrapping_add(7);
    }
    assert!(had_two > 3, "{had_two}");
}

#[test]
fn a_session_that_goes_home_leaves_the_memory_and_waits_for_nobody() {
    let pair = pair();
    assert_eq!(write(pair.fd(0), b"abcd"), Ok(4));
    let space = Memory::of(reserve(pair.fd(0), 1, 9)).unwrap();
    let bytes = Memory::of(loan(pair.fd(1), 1, 9)).unwrap();
    library().go_home(pair.fd(0), ReasonT::Operation, true);
    space.put(b"ef");
    assert_eq!(bytes.bytes(), b"abcd");
    let space = Memory { lent: space.lent.commit(library(), 2).unwrap(), pieces: space.pieces };
    assert_eq!(space.bytes()[..2], *b"ef");
    assert_eq!(write(pair.fd(0), &space.bytes()[..2]), Ok(2));
    space.lent.forget(library());
    assert!(!bytes.lent.give_back(library(), 3), "three of the bytes come once more");
    let (mut buf, mut got) = ([0; 9], 0);
    let limit = Deadline::after(Duration::from_secs(20));
    while got < 6 {
        assert!(!limit.is_over());
        got += read(pair.fd(1), &mut buf[got..]).unwrap_or(0);
    }
    assert_eq!(&buf[..6], b"abcdef");
    assert!(!is_away(pair.fd(0)));
}

#[test]
fn a_hostile_peer_changes_lent_bytes_at_most() {
    let pair = Pair::new();
    let hostile = pair.join_hostile();
    hostile.sends(b"x");
    let limit = Deadline::after(Duration::from_secs(20));
    while read(pair.fd(0), &mut [0; 9]) != Ok(1) {
        assert!(!limit.is_over());
    }
    hostile.sends(b"abcde");
    let bytes = Memory::of(loan(pair.fd(0), 5, 9)).unwrap();
    hostile.rewrites(b"ABCDE");
    assert_eq!(bytes.bytes(), b"ABCDE");
    // Positions that are impossible: the reader's own is moved, too.
    const IN_HEAD: usize = 512 + 128;
    hostile.set(IN_HEAD, 1 << 40);
    assert!(!bytes.lent.give_back(library(), 5));
    hostile.set(512, 1 << 50);
    assert!(matches!(loan(pair.fd(0), 1, 9), Lending::Elsewhere | Lending::TimedOut));
    let _ = read(pair.fd(0), &mut [0; 9]);
    assert!(!is_away(pair.fd(0)), "the peer has broken the rules");
}

#[test]
fn a_hostile_peer_cannot_make_room_that_is_not_there() {
    let pair = Pair::new();
    let hostile = pair.join_hostile();
    hostile.side.consent();
    let space = Memory::of(reserve(pair.fd(0), 1, 1 << 20)).unwrap();
    assert!(space.pieces[0].len + space.pieces[1].len <= 64 << 10);
    // A position beyond all bytes that were written.
    hostile.set(128, 1 << 40);
    assert!(space.lent.commit(library(), 1).is_none());
    while let Some(space) = Memory::of(reserve(pair.fd(0), 1, 1 << 20)) {
        assert!(space.pieces[0].len + space.pieces[1].len <= 64 << 10);
        assert!(space.lent.commit(library(), 60_000).is_none());
    }
    let limit = Deadline::after(Duration::from_secs(20));
    while is_away(pair.fd(0)) {
        assert!(!limit.is_over(), "the peer has broken the rules");
        let _ = write(pair.fd(0), &[0; 4096]);
    }
}
