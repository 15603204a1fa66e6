//! A peer that writes anything into the shared words, before and while we work: nothing panics,
//! nothing outside the own ring is written, and every answer stays within its bounds.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Random, inbox, watchdog};
use sojourn_shm::{Access, Mapping, NewSegment, Segment};
use sojourn_stream::{
    Bell, CONTROL_BYTES, Inbox, Layout, SlotNumber, Stop, Stream, totals_in_header,
};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const RING: usize = 4096;

/// A word that may hit something: positions near each other, near the ends, frozen or not.
fn word(random: &mut Random) -> u64 {
    let small = random.below(3 * RING as u64);
    match random.below(8) {
        0 => random.next(),
        1 => small | 1 << 63,
        2 => u64::MAX - small,
        3 => (1 << 63) - small,
        4 => 0,
        5 => RING as u64,
        _ => small,
    }
}

fn scribble(control: &Mapping, random: &mut Random, words: u64) {
    for _ in 0..words {
        // Mostly where the rings' words are.
        let end = if random.below(4) == 0 { CONTROL_BYTES } else { 1024 };
        let at = random.below(end as u64 / 8) as usize * 8;
        control.word64(at).unwrap().store(word(random), Ordering::Relaxed);
    }
}

/// An answer is a refusal or within its bounds.
fn within(answer: Result<usize, Stop>, most: usize) {
    assert!(answer.is_err() || answer.is_ok_and(|bytes| bytes <= most), "{answer:?}");
}

/// Does one operation, and checks its result as far as it can be checked.
fn act(stream: &Stream, random: &mut Random) {
    let len = random.below(9000) as usize;
    let mut buf = vec![7; len];
    match random.below(14) {
        0 | 1 => within(stream.write(&[IoSlice::new(&buf)], random.below(4096) as usize), len),
        2 | 3 => {
            within(stream.read(&mut [IoSliceMut::new(&mut buf)], random.below(3) == 0), len);
        }
        4 => {
            let filled = stream.write_with(len, |span| {
                assert!(span.len() <= RING.min(len));
                Ok::<_, ()>(span.copy_from(&[7; RING]))
            });
            within(filled.map(Result::unwrap), len);
        }
        5 => {
            within(stream.room(), RING);
            within(stream.available(), RING);
            assert!(stream.pending() <= RING);
        }
        6 => {
            within(stream.own_leftover(), RING);
            within(stream.peer_leftover(), RING);
        }
        7 => assert!(stream.copy_own_leftover(random.below(5000) as usize, &mut buf) <= len),
        8 => assert!(stream.copy_unflushed(random.next() as usize, &mut buf) <= len),
        9 => assert!(stream.peer_flushed().is_none_or(|len| len <= RING)),
        10 => {
            stream.announce_reader(Bell::OnFutex);
            stream.announce_writer(Bell::OnFutex, len);
            stream.withdraw_reader();
            stream.withdraw_writer();
        }
        11 => {
            stream.notify_peer();
            let _ = (stream.wake_reader(), stream.wake_writer());
        }
        12 => {
            stream.set_cpu(random.next() as u16);
            let _ = (stream.peer_cpu_reading(), stream.peer_cpu_writing(), stream.totals());
            let _ = (stream.is_frozen(), stream.has_consent(), stream.peer_uses_ring());
        }
        _ => {
            stream.consent();
            stream.use_ring();
            stream.set_flushed(len);
            stream.attention();
        }
    }
}

/// Region, the hostile side's view of it, and ours.
fn world(side: usize) -> (Segment, Mapping, Stream) {
    let layout = Layout::new([RING as u32; 2]).unwrap();
    let NewSegment { segment, mapping: hostile } =
        Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
    let ours = segment.map(Access::ReadWrite).unwrap();
    let stream =
        Stream::new(ours, layout, side, Arc::clone(&inbox()[1]), SlotNumber(u32::MAX)).unwrap();
    (segment, hostile, stream)
}

fn assert_other_ring_untouched(hostile: &Mapping, side: usize) {
    let mut bytes = vec![1; RING];
    let at = CONTROL_BYTES + (1 - side) * RING;
    hostile.span(at, RING).unwrap().copy_to(&mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0), "a write went beyond its ring");
}

#[test]
fn random_words_before_each_operation_do_no_harm() {
    let _guard = watchdog("random words", 120);
    let mut random = Random(99);
    for round in 0..400 {
        let side = round % 2;
        let (segment, hostile, mut stream) = world(side);
        for _ in 0..60 {
            let words = 1 + random.below(40);
            scribble(&hostile, &mut random, words);
            if random.below(20) == 0 {
                // Mapped anew, over whatever lies there.
                let layout = Layout::new([RING as u32; 2]).unwrap();
                let ours = segment.map(Access::ReadWrite).unwrap();
                stream = Stream::new(ours, layout, side, Arc::clone(&inbox()[1]), SlotNumber(1))
                    .unwrap();
            }
            (0..3).for_each(|_| act(&stream, &mut random));
        }
        assert_other_ring_untouched(&hostile, side);
        let mut header = vec![0; CONTROL_BYTES];
        hostile.span(0, CONTROL_BYTES).unwrap().copy_to(&mut header);
        assert!(
            totals_in_header(&header).is_some_and(|totals| totals.iter().all(|n| n >> 63 == 0))
        );
    }
}

#[test]
fn random_words_during_the_operations_do_no_harm() {
    let _guard = watchdog("words meanwhile", 120);
    for seed in 1..20 {
        let (_segment, hostile, stream) = world(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(seed);
                while !done.load(Ordering::Relaxed) {
                    scribble(&hostile, &mut random, 10);
                }
            });
            let mut random = Random(seed + 1000);
            (0..3000).for_each(|_| act(&stream, &mut random));
            done.store(true, Ordering::Relaxed);
        });
        assert_other_ring_untouched(&hostile, 0);
    }
}

#[test]
fn positions_that_cannot_be_are_a_violation() {
    let (_segment, hostile, stream) = world(0);
    stream.use_ring();
    stream.write(&[IoSlice::new(b"hello")], 1).unwrap();
    // The peer claims to have read more than was written.
    let head = |value: u64| hostile.word64(128).unwrap().store(value, Ordering::Relaxed);
    head(6);
    assert_eq!(stream.room(), Err(Stop::Violation));
    head(2);
    assert_eq!(stream.room(), Ok(RING - 3));
    head(1 << 62);
    assert_eq!(stream.write(&[IoSlice::new(&[0; RING])], 1), Err(Stop::Violation));
    // Somebody moved our own tail.
    head(5);
    hostile.word64(0).unwrap().store(77, Ordering::Relaxed);
    assert_eq!(stream.write(&[IoSlice::new(b"x")], 1), Err(Stop::Violation));
}

/// A program that was told of bytes, or of room, by a look that only waited finds them after the
/// peer has gone back on its word and frozen the rings.
#[test]
fn what_a_wait_has_seen_is_true_of_the_leftovers() {
    let (segment, hostile, stream) = world(0);
    let layout = Layout::new([RING as u32; 2]).unwrap();
    let map = segment.map(Access::ReadWrite).unwrap();
    let peer = Stream::new(map, layout, 1, Arc::clone(&inbox()[1]), SlotNumber(1)).unwrap();
    let store = |at: usize, value: u64| {
        hostile.word64(at).unwrap().store(value, Ordering::Relaxed);
    };
    stream.use_ring();
    peer.use_ring();
    let hello = [IoSlice::new(b"hello")];
    stream.write(&hello, 1).unwrap();
    peer.write(&hello, 1).unwrap();
    store(128, 3);
    assert!(stream.may_read() && stream.may_write(1));
    // The peer says now that it has sent less, and that it has read less.
    store(512, 1 << 63 | 1);
    store(128, 1 << 63 | 2);
    stream.freeze();
    assert_eq!(stream.peer_leftover(), Ok(5));
    assert_eq!(stream.own_leftover(), Err(Stop::Violation));
}

/// What cannot be is not believed even if a wait has seen it.
#[test]
fn what_a_wait_has_seen_is_checked() {
    let (segment, hostile, stream) = world(0);
    let layout = Layout::new([RING as u32; 2]).unwrap();
    let map = segment.map(Access::ReadWrite).unwrap();
    let peer = Stream::new(map, layout, 1, Arc::clone(&inbox()[1]), SlotNumber(1)).unwrap();
    peer.use_ring();
    peer.write(&[IoSlice::new(b"hello")], 1).unwrap();
    assert_eq!(stream.available(), Ok(5));
    for tail in [1 << 62, RING as u64 + 1, 6] {
        hostile.word64(512).unwrap().store(tail, Ordering::Relaxed);
        assert!(stream.may_read());
    }
    hostile.word64(512).unwrap().store(1 << 63 | 2, Ordering::Relaxed);
    stream.freeze();
    assert_eq!(stream.peer_leftover(), Ok(5));
}

#[test]
fn an_inbox_full_of_nonsense_names_only_slots_there_are() {
    let _guard = watchdog("inbox of nonsense", 60);
    let NewSegment { segment, mapping: hostile } =
        Segment::create("test", Inbox::LEN, Access::ReadWrite).unwrap();
    let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let ours = segment.map(Access::ReadWrite).unwrap();
    let owner = Inbox::new(ours, event(), event()).unwrap();
    let mut random = Random(5);
    for _ in 0..50 {
        for at in (0..Inbox::LEN / 8).filter(|_| random.0.is_multiple_of(3)) {
            hostile.word64(at * 8).unwrap().store(u64::MAX, Ordering::Relaxed);
        }
        random.next();
        let mut count = 0;
        owner.take_ready(&mut |slot, _| {
            assert!(slot.0 < Inbox::SLOTS);
            count += 1;
        });
        owner.take_attention(&mut |slot| assert!(slot.0 < Inbox::SLOTS));
        assert!(count <= Inbox::SLOTS && !owner.has_ready());
        owner.clear_event();
        owner.post_ready(SlotNumber(Inbox::SLOTS));
        owner.post_attention(SlotNumber(u32::MAX));
        assert!(!owner.has_ready());
    }
}

#[test]
fn a_header_that_is_too_short_has_no_totals() {
    assert_eq!(totals_in_header(&[0; 100]), None);
    assert_eq!(totals_in_header(&[0; CONTROL_BYTES]), Some([0, 0]));
}
