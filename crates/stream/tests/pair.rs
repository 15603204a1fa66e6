//! Both ends of a stream in one process: bytes that are written are read, and the end.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{inbox, pair};
use sojourn_shm::futex::Woken;
use sojourn_shm::{Access, NewSegment, Segment};
use sojourn_stream::{Bell, Layout, SlotNumber, Stop, Stream, Traffic};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn bytes_cross_only_after_consent_and_switch() {
    let [a, b] = pair([4096, 4096]);
    assert_eq!(a.write(&[IoSlice::new(b"x")], 1), Err(Stop::NotOnRing));
    assert!(!a.has_consent());
    b.consent();
    assert!(a.has_consent() && b.has_consented() && !b.peer_uses_ring());
    assert_eq!(b.available(), Err(Stop::NotOnRing));
    a.use_ring();
    assert!(b.peer_uses_ring());
    assert_eq!(b.available(), Ok(0));
    assert_eq!(a.write(&[IoSlice::new(b"hel"), IoSlice::new(b""), IoSlice::new(b"lo")], 1), Ok(5));
    assert_eq!(a.pending(), 5);
    let (mut one, mut two) = ([0; 2], [0; 9]);
    let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
    assert_eq!(b.read(&mut bufs, true), Ok(5));
    assert_eq!(b.read(&mut bufs, false), Ok(5));
    assert_eq!(b.read(&mut bufs, false), Err(Stop::Empty));
    assert_eq!((&one, &two[..3]), (b"he", &b"llo"[..]));
    assert_eq!(a.totals(), Traffic { sent: 5, received: 0 });
    assert_eq!(b.totals(), Traffic { sent: 0, received: 5 });
}

/// Bytes as they follow one another from that position on.
fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_writer_that_turns_finds_room_behind_a_full_near_part() {
    let [a, b] = pair([32 << 10, 0]);
    a.set_near(4096);
    a.use_ring();
    let (mut written, mut read, mut buf) = (0, 0, vec![0; 64 << 10]);
    for round in 1..20 {
        let mut write = |len: usize| {
            let done = a.write(&[IoSlice::new(&bytes(written, len))], 0).unwrap_or(0);
            written += done;
            done
        };
        assert_eq!(write(5000), 4096, "the near part");
        assert_eq!((a.room(), a.room_in_all()), (Ok(0), Ok(28 << 10)));
        assert!(a.turn() && !a.turn(), "once");
        assert_eq!((a.room(), a.room_in_all()), (Ok(28 << 10), Ok(28 << 10)));
        assert_eq!(write(20_000), 20_000);
        assert_eq!(write(20_000), (28 << 10) - 20_000, "the far part");
        assert_eq!(b.available(), Ok(32 << 10));
        let mut take = |len: usize| {
            let got = b.read(&mut [IoSliceMut::new(&mut buf[..len])], false).unwrap();
            assert_eq!(buf[..got], bytes(read, got), "round {round}");
            read += got;
            got
        };
        assert_eq!(take(3000 + round), 3000 + round);
        assert_eq!(write(1), 0, "what is read from the near part makes no room");
        assert_eq!(take(3000), 3000);
        assert_eq!(write(9000), 1904 + round, "what is read from the far part does");
        let left = b.available().unwrap();
        assert_eq!(take(64 << 10), left);
        assert_eq!(a.room_in_all(), Ok(28 << 10));
    }
    assert!(a.write(&[IoSlice::new(&bytes(written, 4000))], 0) == Ok(4000) && a.turn());
    assert_eq!(a.write(&[IoSlice::new(&bytes(written + 4000, 9000))], 0), Ok(9000));
    a.freeze();
    assert_eq!(a.own_leftover(), Ok(13_000));
    assert_eq!(b.copy_unflushed(1000, &mut buf), 12_000);
    assert_eq!(buf[..12_000], bytes(written + 1000, 12_000));
}

/// Giving memory back waits for the lock of its file, which a peer of another user could hold.
#[test]
fn memory_goes_back_unless_the_peer_is_another_users() {
    for keeps in [false, true] {
        let layout = Layout::new([8 << 20, 0]).unwrap();
        let NewSegment { segment, mapping: memory } =
            Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
        let a = Stream::new(memory, layout, 0, Arc::clone(&inbox()[1]), SlotNumber(7)).unwrap();
        let a = if keeps { a.keeping_memory() } else { a };
        let mapping = segment.map(Access::ReadWrite).unwrap();
        let b = Stream::new(mapping, layout, 1, Arc::clone(&inbox()[1]), SlotNumber(7)).unwrap();
        a.set_near(4096);
        a.use_ring();
        let (sent, mut room) = (vec![1; 6 << 20], vec![0; 6 << 20]);
        assert!(a.write(&[IoSlice::new(&sent[..4096])], 0) == Ok(4096) && a.turn());
        assert_eq!(a.write(&[IoSlice::new(&sent)], 0), Ok(6 << 20));
        while b.read(&mut [IoSliceMut::new(&mut room)], false) != Err(Stop::Empty) {}
        let blocks = || rustix::fs::fstat(&segment).unwrap().st_blocks;
        let before = blocks();
        assert!(a.write(&[IoSlice::new(&[1])], 0) == Ok(1) && before >= (6 << 20) / 512);
        assert_eq!(blocks() == before, keeps, "{before} {}", blocks());
    }
}

#[test]
#[allow(unsafe_code, reason = "it is asked for where bytes will lie")]
fn bytes_are_filled_in_where_they_will_lie() {
    let [a, b] = pair([4096, 0]);
    assert_eq!(a.vacant(1).err(), Some(Stop::NotOnRing));
    a.use_ring();
    assert_eq!(a.vacant(4097).err(), Some(Stop::Full));
    let mut room = [0; 4096];
    // The second time they go on at the beginning of the ring's memory.
    for (byte, lens) in [(1, [3000, 0]), (2, [1096, 1904])] {
        let parts = a.vacant(3000).unwrap();
        let found = parts.each_ref().map(|part| part.as_ref().map_or(0, |part| part.len()));
        assert_eq!(found, lens);
        for part in parts.into_iter().flatten() {
            // SAFETY: nobody else uses them.
            unsafe { part.as_mut_slice() }.fill(byte);
        }
        assert_eq!(b.available(), Ok(0), "not published yet");
        a.publish_filled(3000).unwrap();
        assert_eq!(a.vacant(1097).err(), Some(Stop::Full));
        assert_eq!(b.read(&mut [IoSliceMut::new(&mut room)], false), Ok(3000));
        assert!(room[..3000].iter().all(|found| *found == byte));
    }
    b.got_beside(10);
    assert_eq!(b.totals(), Traffic { sent: 0, received: 6010 });
    b.freeze();
    assert_eq!(a.vacant(1).err(), Some(Stop::Frozen));
    assert_eq!(a.publish_filled(1), Err(Stop::Frozen));
}

#[test]
fn a_frozen_stream_leaves_exactly_what_was_not_read() {
    let [a, b] = pair([4096, 0]);
    a.use_ring();
    a.write(&[IoSlice::new(b"hello")], 1).unwrap();
    let mut two = [0; 2];
    b.read(&mut [IoSliceMut::new(&mut two)], false).unwrap();
    assert_eq!(a.own_leftover(), Err(Stop::NotFrozen));
    b.freeze();
    assert!(a.is_frozen());
    assert_eq!(a.write(&[IoSlice::new(b"x")], 1), Err(Stop::Frozen));
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut two)], false), Err(Stop::Frozen));
    assert_eq!((a.own_leftover(), b.peer_leftover()), (Ok(3), Ok(3)));
    assert_eq!(b.peer_flushed(), None);
    let mut rest = [0; 9];
    assert_eq!(a.copy_own_leftover(1, &mut rest), 2);
    assert_eq!(&rest[..2], b"lo");
    a.set_flushed(2);
    assert_eq!(b.peer_flushed(), Some(2));
    assert_eq!(b.copy_unflushed(2, &mut rest), 1);
    assert_eq!(rest[0], b'o');
}

#[test]
#[allow(unsafe_code, reason = "it is asked for where bytes lie")]
fn what_is_being_sent_is_sent_though_the_stream_is_frozen() {
    let [a, b] = pair([4096, 0]);
    a.use_ring();
    a.write(&[IoSlice::new(b"hello")], 1).unwrap();
    b.release(1).unwrap();
    // SAFETY: nobody else writes.
    let ahead = |skip, len| unsafe { b.ahead(skip, len) }.map(|parts| parts.concat());
    for freeze in [false, true] {
        if freeze {
            b.freeze();
        }
        assert_eq!(ahead(0, 4), Ok(b"ello".to_vec()));
        assert_eq!(ahead(2, 9), Ok(b"lo".to_vec()));
        assert_eq!(ahead(9, 1), Ok(Vec::new()));
    }
    assert_eq!(b.release(1), Err(Stop::Frozen));
    assert_eq!(b.peer_leftover(), Ok(4));
}

#[test]
fn what_is_called_home_is_not_claimed() {
    let [a, b] = pair([4096, 4096]);
    assert!(a.ledger().take() && b.claim() && a.ledger().is_claimed());
    let [a, b] = pair([4096, 4096]);
    assert!(a.ledger().take());
    b.freeze();
    // Otherwise nobody would put the session back: the carrier would wait for the process that has
    // claimed it, and that process for the carrier.
    assert!(!b.claim() && a.ledger().revoke());
}

#[test]
fn sleepers_are_told_apart() {
    let [a, b] = pair([4096, 4096]);
    a.use_ring();
    b.announce_reader(Bell::OnInbox);
    let expected = b.announce_reader(Bell::OnFutex);
    b.withdraw_reader();
    assert!(b.wake_reader(), "the inbox stays announced");
    assert!(!b.wake_reader());
    assert_ne!(b.reader_bell().load(std::sync::atomic::Ordering::Relaxed), expected);
}

/// Found by `model`: the words beside the tail of a fresh region passed for a message at
/// position 0.
#[test]
fn a_fresh_region_has_no_short_message() {
    let [a, b] = pair([4096, 4096]);
    a.use_ring();
    let filled = a.write_with(1, |span| Ok::<_, ()>(span.copy_from(b"x")));
    assert_eq!(filled, Ok(Ok(1)));
    let mut one = [0];
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut one)], false), Ok(1));
    assert_eq!(&one, b"x");
}

/// Found by `model`: a short message was taken to be as long as all that was there.
#[test]
fn a_short_message_ends_where_the_next_bytes_begin() {
    let [a, b] = pair([4096, 4096]);
    a.use_ring();
    assert_eq!(a.write(&[IoSlice::new(b"he")], 1), Ok(2));
    let filled = a.write_with(3, |span| Ok::<_, ()>(span.copy_from(b"llo")));
    assert_eq!(filled, Ok(Ok(3)));
    let mut all = [0; 5];
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut all)], false), Ok(5));
    assert_eq!(&all, b"hello");
}

#[test]
fn the_processor_is_told_with_the_next_read_or_write() {
    let [a, b] = pair([4096, 4096]);
    a.use_ring();
    a.set_cpu(3);
    b.set_cpu(2);
    assert_eq!((b.peer_cpu_writing(), a.peer_cpu_reading()), (0, 0));
    a.write(&[IoSlice::new(b"x")], 1).unwrap();
    b.read(&mut [IoSliceMut::new(&mut [0])], false).unwrap();
    assert_eq!((b.peer_cpu_writing(), a.peer_cpu_reading()), (3, 2));
}

#[test]
fn a_pipe_has_one_ring() {
    let [a, b] = pair([4096, 0]);
    assert_eq!((a.out_bytes(), a.in_bytes(), b.out_bytes()), (4096, 0, 0));
    a.consent();
    b.use_ring();
    assert!(!b.has_consent() && !b.uses_ring() && !a.peer_uses_ring());
    assert_eq!(b.write(&[IoSlice::new(b"x")], 1), Err(Stop::NotOnRing));
    assert_eq!(a.read(&mut [IoSliceMut::new(&mut [0])], false), Err(Stop::NotOnRing));
    a.freeze();
    assert_eq!((a.peer_leftover(), b.own_leftover()), (Ok(0), Ok(0)));
}

#[test]
fn sizes_are_powers_of_two_within_bounds() {
    for wrong in [[0, 4096], [4095, 4096], [2048, 4096], [128 << 20, 0], [4096, 12288]] {
        assert!(Layout::new(wrong).is_none(), "{wrong:?}");
    }
    assert_eq!(Layout::new([4096, 16 << 20]).unwrap().len(), 4096 + 4096 + (16 << 20));
    assert_eq!(Layout::new([65536, 0]).unwrap().len(), 4096 + 65536);
}

#[test]
fn who_is_near_is_known_from_what_both_have_told() {
    let [a, b] = pair([4096, 4096]);
    let is_near =
        || [a.reader_is_near(), a.writer_is_near(), b.reader_is_near(), b.writer_is_near()];
    a.use_ring();
    a.set_cpu(3);
    b.set_cpu(3);
    assert_eq!(is_near(), [false; 4], "neither has told the other yet");
    a.write(&[IoSlice::new(b"hello")], 1).unwrap();
    b.read(&mut [IoSliceMut::new(&mut [0; 9])], false).unwrap();
    assert_eq!(is_near(), [true, false, false, true]);
    b.set_cpu(4);
    assert!(!b.writer_is_near());
    a.write(&[IoSlice::new(b"hello")], 1).unwrap();
    b.read(&mut [IoSliceMut::new(&mut [0; 9])], false).unwrap();
    assert_eq!(is_near(), [false; 4]);
}

#[test]
fn a_long_write_wakes_a_reader_that_sleeps_again_a_few_times_only() {
    const LEN: usize = 256 << 10;
    let [a, b] = pair([512 << 10, 0]);
    b.consent();
    a.use_ring();
    let (message, mut buf) = (vec![1; LEN], vec![0; LEN]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                b.announce_reader(Bell::OnFutex);
                b.withdraw_reader();
            }
        });
        for _ in 0..200 {
            a.has_rung(0);
            let written = a.write(&[IoSlice::new(&message)], 0);
            // At the first piece, behind 128 KiB, and at the end.
            let is_often = a.has_rung(4);
            let read = b.read(&mut [IoSliceMut::new(&mut buf)], false);
            if is_often || written != Ok(LEN) || read != Ok(LEN) {
                is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("{is_often} {written:?} {read:?}");
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_long_write_to_a_reader_that_sleeps_rings() {
    let [a, b] = pair([512 << 10, 0]);
    b.consent();
    a.use_ring();
    b.announce_reader(Bell::OnFutex);
    a.has_rung(0);
    assert_eq!(a.write(&[IoSlice::new(&[1; 200 << 10])], 0), Ok(200 << 10));
    assert!(a.has_rung(1));
}

/// Tells whether a reader that sleeps since before `work` is woken by it.
fn wakes(reader: &Stream, work: impl FnOnce()) -> bool {
    let expected = reader.announce_reader(Bell::OnFutex);
    work();
    let woken =
        reader.sleep_reader(expected, Some(Duration::from_millis(1)), sojourn_shm::futex::wait);
    reader.withdraw_reader();
    woken != Woken::TimedOut
}

#[test]
fn a_corked_writer_wakes_its_reader_once() {
    let [a, b] = pair([1 << 17, 0]);
    a.use_ring();
    let write = |len: usize| assert_eq!(a.write(&[IoSlice::new(&bytes(0, len))], 0), Ok(len));
    assert!(wakes(&b, || write(10)));
    a.set_corked(true);
    assert!(!wakes(&b, || write(10)), "it is held back");
    assert_eq!(b.available(), Ok(20), "who looks finds it");
    assert!(wakes(&b, || a.set_corked(false)));
    assert!(wakes(&b, || write(10)), "no cork is in");
    a.set_corked(true);
    assert!(!wakes(&b, || a.set_corked(false)), "nothing was held back");
}

#[test]
fn what_a_cork_holds_back_is_not_held_for_ever() {
    let [a, b] = pair([1 << 17, 0]);
    a.use_ring();
    let write = |len: usize| assert_eq!(a.write(&[IoSlice::new(&bytes(0, len))], 0), Ok(len));
    assert!(!a.look_at_cork(), "no cork is in");
    a.set_corked(true);
    assert!(!wakes(&b, || write(10)));
    assert!(!wakes(&b, || assert!(a.look_at_cork())), "the first look");
    assert!(wakes(&b, || assert!(a.look_at_cork())), "the second one");
    assert!(!wakes(&b, || assert!(a.look_at_cork())), "nothing is held back");
    assert!(!wakes(&b, || write(10)));
    assert!(wakes(&b, || a.push()));
    assert!(!wakes(&b, || write(10)), "the cork is in still");
    assert!(wakes(&b, || write(60_000)), "as much as a segment");
}
