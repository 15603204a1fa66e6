//! Receiving from a peer that is in the middle of its flush: a message that the peer wrote in one
//! piece is not cut where the pieces of the flush meet.
//!
//! The test is the peer, and stops wherever it likes. Real peers: `crowd` of `tests/system`.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::host::tcp_counts;
use crate::io::call_flags::Recv;
use crate::io::from_kernel::BytesOnly;
use crate::process::library::library;
use crate::session::Session;
use crate::session::received::{ReceiveTerms, Received};
use crate::session_fakes::{Hostile, Pair, is_away, read, receive};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::io::{Errno, IoSliceMut};
use sojourn_session::ReasonT;

/// A record, and as much of it as the kernel has at first.
const RECORD: usize = 700;
const FIRST: usize = 300;

fn record() -> Vec<u8> {
    (0..RECORD).map(|at| (at % 251) as u8).collect()
}

/// End 0 reads; the peer has frozen the stream, owes a record, and has begun to flush.
fn flushing() -> (Pair, Hostile) {
    let pair = Pair::new();
    let hostile = pair.join_hostile();
    hostile.sends(&record());
    hostile.side.freeze();
    assert_eq!(hostile.side.begin_flush(), 0);
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::PeerLeft, false);
    (pair, hostile)
}

/// Bytes `from` to `to` of the record come to the kernel.
fn comes(pair: &Pair, from: usize, to: usize) {
    let piece = &record()[from..to];
    assert_eq!(rustix::io::write(pair.ends[1].as_ref().unwrap(), piece), Ok(to - from));
}

/// The next read has the whole record.
fn reads_all(pair: &Pair) {
    let mut buf = [0; RECORD + 1];
    assert_eq!(read(pair.fd(0), &mut buf), Ok(RECORD));
    assert_eq!(buf[..RECORD], record());
}

/// One look for so many bytes. `None`: they are to be waited for.
fn look(session: &Session, wanted: usize, may_cut: bool) -> Option<Result<usize, Errno>> {
    let (mut rx, mut buf) = (lock(&session.rx), vec![0; wanted]);
    let stream = rx.stream.clone().unwrap();
    let bufs = &mut [IoSliceMut::new(&mut buf)];
    let look = ReceiveTerms { peek: false, may_cut };
    match session.look_for_rest(&mut rx, &stream, bufs, look, &mut BytesOnly::default()) {
        Received::Done(done) => Some(done),
        Received::Owed => None,
        _ => panic!("neither received nor to be waited for"),
    }
}

#[test]
fn between_two_pieces_a_read_waits_for_the_second() {
    let (pair, hostile) = flushing();
    let session = library().session_of(pair.fd(0)).unwrap();
    comes(&pair, 0, FIRST);
    assert_eq!(look(&session, RECORD, false), None);
    comes(&pair, FIRST, RECORD);
    hostile.side.set_flushed(RECORD);
    reads_all(&pair);
}

#[test]
fn where_the_kernel_is_full_a_read_of_what_it_has_does_not_wait() {
    let (pair, hostile) = flushing();
    let session = library().session_of(pair.fd(0)).unwrap();
    comes(&pair, 0, FIRST);
    hostile.side.set_flushing(FIRST);
    assert_eq!(look(&session, FIRST + 1, false), None);
    assert_eq!(look(&session, FIRST - 1, false), Some(Ok(FIRST - 1)));
    assert_eq!(look(&session, 1, false), Some(Ok(1)));
}

/// Bytes that were in the kernel before the peer's ring began come first, and do not count as owed,
/// however far the peer has come when the session goes home.
#[test]
fn what_was_in_the_kernel_before_is_not_taken_for_owed() {
    for said in [None, Some(0), Some(FIRST)] {
        let pair = Pair::new();
        let hostile = pair.join_hostile();
        comes(&pair, 0, FIRST);
        hostile.sends(&record());
        hostile.side.freeze();
        assert_eq!(hostile.side.begin_flush(), 0);
        comes(&pair, 0, said.unwrap_or(FIRST));
        if let Some(said) = said {
            hostile.side.set_flushing(said);
        }
        let session = library().session_of(pair.fd(0)).unwrap();
        session.leave(ReasonT::PeerLeft, false);
        if said.is_none() {
            assert_eq!(look(&session, 2 * RECORD, true), None);
            hostile.side.set_flushing(FIRST);
        }
        let done = said.unwrap_or(FIRST);
        comes(&pair, done, RECORD);
        // Of all that is there, this is short of the end: nothing is settled yet.
        assert_eq!(look(&session, FIRST + RECORD - 1, true), Some(Ok(FIRST + RECORD - 1)));
        assert!(is_away(pair.fd(0)), "{said:?}");
        hostile.side.set_flushed(RECORD);
        assert_eq!(read(pair.fd(0), &mut [0; RECORD]), Ok(1));
        assert_eq!(read(pair.fd(0), &mut [0; RECORD]), Err(Errno::AGAIN));
        assert!(!is_away(pair.fd(0)), "{said:?}");
    }
}

/// On TCP, bytes that the peer has flushed may be on their way when they are counted, as many are
/// where the kernel's buffers are full. Then those that were there before come first all the same,
/// and what has stayed in the ring comes where the flushed ones end.
#[test]
fn flushed_bytes_on_their_way_are_told_from_what_was_there_before() {
    let pair = Pair::tcp();
    let hostile = pair.join_hostile();
    comes(&pair, 0, FIRST);
    hostile.sends(&record());
    hostile.side.freeze();
    kernel::acknowledge(pair.fd(0));
    hostile.side.note_sent(tcp_counts::sent_in_all(pair.fd(1)).unwrap());
    assert_eq!(hostile.side.begin_flush(), 0);
    hostile.side.set_flushed(FIRST);
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::PeerLeft, false);
    comes(&pair, 0, FIRST);
    let (mut got, mut buf) = (Vec::new(), [0; RECORD]);
    while got.len() < FIRST + RECORD {
        let len = read(pair.fd(0), &mut buf).unwrap();
        got.extend_from_slice(&buf[..len]);
    }
    assert_eq!(got, [&record()[..FIRST], &record()].concat());
    assert_eq!(read(pair.fd(0), &mut buf), Err(Errno::AGAIN));
}

/// What was peeked at is kept until it is received, and what was written at home comes behind it.
#[test]
fn what_comes_behind_peeked_bytes_belongs_to_the_same_read() {
    let pair = Pair::new();
    let hostile = pair.join_hostile();
    hostile.sends(&record()[..FIRST]);
    let session = library().session_of(pair.fd(0)).unwrap();
    let mut shown = [0; RECORD];
    let peek = Recv { peek: true, ..Recv::default() };
    assert_eq!(receive(pair.fd(0), &mut shown, peek), Ok(FIRST));
    hostile.side.freeze();
    assert_eq!(hostile.side.begin_flush(), 0);
    session.leave(ReasonT::PeerLeft, false);
    // The bytes change on their way; the program is given those that it has seen.
    comes(&pair, 1, FIRST + 1);
    hostile.side.set_flushed(FIRST);
    comes(&pair, FIRST, RECORD);
    reads_all(&pair);
    assert_eq!(read(pair.fd(0), &mut [0; 1]), Err(Errno::AGAIN));
    assert!(!is_away(pair.fd(0)));
}

/// The kernel was full, and nothing can follow: the rest is in the ring.
#[test]
fn a_record_that_the_kernel_had_room_for_half_of_is_whole() {
    let (pair, hostile) = flushing();
    comes(&pair, 0, FIRST);
    hostile.side.set_flushed(FIRST);
    reads_all(&pair);
}

/// Neither of those that may wait, nor of those that must not: the peer may have been stopped.
#[test]
fn nobody_waits_long_for_the_second() {
    let (pair, hostile) = flushing();
    comes(&pair, 0, FIRST);
    assert_eq!(read(pair.fd(0), &mut [0; RECORD]), Ok(FIRST));
    assert_eq!(read(pair.fd(0), &mut [0; RECORD]), Err(Errno::AGAIN));
    let session = library().session_of(pair.fd(0)).unwrap();
    session.is_nonblocking.store(false, Ordering::SeqCst);
    comes(&pair, FIRST, RECORD - 1);
    assert_eq!(read(pair.fd(0), &mut [0; RECORD]), Ok(RECORD - 1 - FIRST));
    comes(&pair, RECORD - 1, RECORD);
    hostile.side.set_flushed(RECORD);
    assert_eq!(read(pair.fd(0), &mut [0; RECORD]), Ok(1));
}

/// A poll may have reported the bytes before the flush began, so a call that must not wait must not
/// say that there are none, although the peer stands between the two places for a while.
#[test]
fn a_read_that_must_not_wait_finds_what_a_poll_has_reported() {
    for _ in 0..5 {
        let (pair, hostile) = flushing();
        library().patience.restore();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(2));
                comes(&pair, 0, RECORD);
                hostile.side.set_flushed(RECORD);
                hostile.side.notify_peer();
            });
            reads_all(&pair);
        });
    }
}

/// One read has what the kernel has, and behind it what the peer wrote after its switch to the
/// ring, also if it has frozen the stream since and has not begun to flush.
#[test]
fn what_is_in_both_places_is_one_read() {
    for is_frozen in [false, true] {
        let pair = Pair::new();
        let hostile = pair.join_hostile();
        comes(&pair, 0, FIRST);
        hostile.sends(&record()[FIRST..]);
        if is_frozen {
            hostile.side.freeze();
        }
        reads_all(&pair);
    }
}

/// A call of the kernel's own takes bytes that the program has peeked at: the next read of the
/// library's shows what follows them.
#[test]
fn what_was_peeked_at_does_not_come_again_after_a_call_of_the_kernels() {
    let pair = Pair::new();
    let hostile = pair.join_hostile();
    hostile.sends(&record());
    let (mut seen, peek) = ([0; 100], Recv { peek: true, ..Recv::default() });
    assert_eq!(receive(pair.fd(0), &mut seen, peek), Ok(100));
    hostile.side.freeze();
    assert_eq!(hostile.side.begin_flush(), 0);
    comes(&pair, 0, RECORD);
    hostile.side.set_flushed(RECORD);
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::Operation, true);
    assert_eq!(rustix::io::read(pair.ends[0].as_ref().unwrap(), &mut seen[..40]), Ok(40));
    assert_eq!(read(pair.fd(0), &mut seen), Ok(100));
    assert_eq!(seen[..], record()[40..140]);
}
