//! Entry points for fuzzing: arbitrary bytes as the peer's half of a stream and of an inbox.
//!
//! The bytes are a little program. Some steps write into the shared memory as only a hostile peer
//! would; the others are the honest side's operations. These properties must hold: no panic, no
//! wait without end, no access outside the region (run it under a sanitizer), no write into the
//! other side's ring, and every answer within its bounds. Debug and fuzzing builds only; not a part
//! of the interface of this crate. Used by `tests/fuzz_run.rs` (deterministic, in every test run)
//! and `fuzz/fuzz_targets/stream_*.rs`.
#![allow(clippy::unwrap_used, reason = "what fails here is what is looked for")]

use crate::ring::Ring;
use crate::{Bell, CONTROL_BYTES, Inbox, Layout, SlotNumber, Stream, totals_in_header};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::event::{EventfdFlags, eventfd};
use sojourn_shm::fuzz::Program;
use sojourn_shm::{Access, Mapping, NewSegment, Segment};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// Steps of one program at most.
const STEPS_MAX: usize = 128;
const RING: usize = 4096;
/// What the honest side writes: never 0.
const HONEST: u8 = 7;

/// A length, up to twice a ring.
fn length(program: &mut Program<'_>) -> usize {
    usize::from(u16::from_le_bytes(program.take())) % (2 * RING)
}

/// A word that may hit something: positions near each other, near the ends, frozen or not.
fn position(program: &mut Program<'_>) -> u64 {
    let how = program.byte();
    let small = length(program) as u64;
    match how & 7 {
        0 => program.word(),
        1 => small | 1 << 63,
        2 => u64::MAX - small,
        3 => (1 << 63) - small,
        4 => 0,
        5 => RING as u64,
        _ => small,
    }
}

/// The hostile peer: its view of the region.
struct Peer(Mapping);

impl Peer {
    /// Writes a word of the control page, mostly one that means something.
    fn scribble(&self, program: &mut Program<'_>) {
        let which = program.byte();
        let end = if which & 7 == 0 { CONTROL_BYTES } else { 2 * size_of::<Ring>() };
        let at = (usize::from(which) * 256 + usize::from(program.byte())) * 8 % end;
        let value = if which & 8 == 0 { position(program) } else { self.near(program) };
        self.0.word64(at).unwrap().store(value, Ordering::Relaxed);
    }

    /// As [`Peer::scribble`], several words, of the control page.
    fn scribble_control(&self, program: &mut Program<'_>) {
        (0..program.byte() & 3).for_each(|_| self.scribble(program));
    }

    /// What just is a violation, or just is not: a ring from a position that is there, one more, or
    /// one less.
    fn near(&self, program: &mut Program<'_>) -> u64 {
        let how = program.byte();
        // Tail and head of both rings.
        let at = usize::from(how & 3) * size_of::<Ring>() / 2;
        let at =
            at - at % size_of::<Ring>() + usize::from(how & 1) * size_of::<crate::ring::TailLine>();
        let position = self.0.word64(at).unwrap().load(Ordering::Relaxed);
        let ring = [0, RING as u64, (RING as u64).wrapping_neg()][usize::from(how >> 2 & 15) % 3];
        position.wrapping_add(ring).wrapping_add(u64::from(how >> 6)).wrapping_sub(1)
    }
}

fn within(answer: Result<usize, crate::Stop>, most: usize) {
    assert!(answer.is_err() || answer.is_ok_and(|bytes| bytes <= most), "{answer:?}");
}

/// A stream whose peer does what `bytes` say.
pub fn stream(bytes: &[u8]) {
    let mut program = Program::new(bytes);
    let first = program.byte();
    let side = usize::from(first & 1);
    let layout = Layout::new([RING as u32, if first & 6 == 6 { 0 } else { RING as u32 }]).unwrap();
    let made = Segment::create("fuzz", layout.len(), Access::ReadWrite);
    let Ok(NewSegment { segment, mapping: hostile }) = made else { return };
    let peer = Peer(hostile);
    let map = || {
        let ours = segment.map(Access::ReadWrite).ok()?;
        Stream::new(ours, layout, side, Arc::new(make_inbox()?.inbox), SlotNumber(u32::from(first)))
    };
    let Some(mut stream) = map() else { return };
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        match step & 31 {
            0..12 => peer.scribble(&mut program),
            12 => {
                // Mapped anew, over whatever lies there.
                let Some(again) = map() else { return };
                stream = again;
            }
            step => act(&stream, &peer, &mut program, step),
        }
    }
    assert_other_ring_untouched(&peer.0, layout, side);
    let mut header = vec![0; CONTROL_BYTES];
    peer.0.span(0, CONTROL_BYTES).unwrap().copy_to(&mut header);
    assert!(totals_in_header(&header).is_some_and(|totals| totals.iter().all(|n| n >> 63 == 0)));
}

/// One operation of the honest side.
fn act(stream: &Stream, peer: &Peer, program: &mut Program<'_>, step: u8) {
    let len = length(program);
    let mut buf = vec![HONEST; len];
    let (before, after) = buf.split_at_mut(len / 3);
    match step {
        13..16 => {
            let parts = [IoSlice::new(before), IoSlice::new(after)];
            within(stream.write(&parts, length(program)), len);
        }
        16..20 => {
            let parts = &mut [IoSliceMut::new(before), IoSliceMut::new(after)];
            within(stream.read(parts, step == 19), len);
        }
        20 => {
            let most = stream.out_bytes() as usize;
            let filled = stream.write_with(len, |span| {
                assert!(span.len() <= most.min(len));
                // The peer moves while we copy.
                peer.scribble(program);
                Ok::<_, ()>(span.copy_from(&[HONEST; RING]) + (len & 1) * RING)
            });
            within(filled.map(Result::unwrap), len);
        }
        21 => {
            within(stream.room(), RING);
            within(stream.available(), RING);
            assert!(stream.pending() <= RING);
        }
        22 => {
            within(stream.own_leftover(), RING);
            within(stream.peer_leftover(), RING);
            assert!(stream.peer_flushed().is_none_or(|len| len <= RING));
        }
        step => rest(stream, peer, program, step, &mut buf),
    }
}

/// The rarer operations.
fn rest(stream: &Stream, peer: &Peer, program: &mut Program<'_>, step: u8, buf: &mut [u8]) {
    let len = buf.len();
    match step {
        23 => assert!(stream.copy_own_leftover(position(program) as usize, buf) <= len),
        24 => assert!(stream.copy_unflushed(position(program) as usize, buf) <= len),
        25 => {
            let expected = stream.announce_reader(Bell::OnFutex);
            peer.scribble(program);
            stream.sleep_reader(expected, Some(Duration::ZERO), sojourn_shm::futex::wait);
            stream.withdraw_reader();
        }
        26 => {
            let expected = stream.announce_writer(Bell::OnFutex, len);
            peer.scribble(program);
            stream.sleep_writer(expected, Some(Duration::ZERO), sojourn_shm::futex::wait);
            stream.withdraw_writer();
        }
        27 => {
            stream.announce_reader(Bell::OnInbox);
            stream.announce_writer(Bell::OnInbox, len);
            stream.notify_peer();
            assert!(
                stream.wake_reader() && stream.wake_writer(),
                "own sleepers are known without the peer"
            );
        }
        28 => {
            stream.set_cpu(len as u16);
            let _ = (stream.peer_cpu_reading(), stream.peer_cpu_writing(), stream.totals());
        }
        29 => {
            stream.consent();
            stream.use_ring();
        }
        30 => {
            stream.freeze();
            assert!(stream.is_frozen());
        }
        _ => {
            stream.set_flushed(len);
            stream.attention();
        }
    }
}

/// A side that writes and reads, goes home and puts into its kernel what is left, while its peer
/// does what `bytes` say between any two looks. Every loop ends: with bytes that this side has
/// written, in order, to the last, or with none. What it was told of the peer's bytes stays so.
pub fn way_home(bytes: &[u8]) {
    let mut program = Program::new(bytes);
    let layout = Layout::new([RING as u32; 2]).unwrap();
    let made = Segment::create("fuzz", layout.len(), Access::ReadWrite);
    let Ok(NewSegment { segment, mapping: hostile }) = made else { return };
    let peer = Peer(hostile);
    let Some(inbox) = make_inbox() else { return };
    let Ok(ours) = segment.map(Access::ReadWrite) else { return };
    let Some(stream) = Stream::new(ours, layout, 0, Arc::new(inbox.inbox), SlotNumber(0)) else {
        return;
    };
    stream.set_near([0, 1024][usize::from(program.byte() & 1)]);
    stream.consent();
    stream.use_ring();
    // Until then it has kept to the rules.
    let Ok(theirs) = segment.map(Access::ReadWrite) else { return };
    let Some(inbox) = make_inbox() else { return };
    let Some(theirs) = Stream::new(theirs, layout, 1, Arc::new(inbox.inbox), SlotNumber(0)) else {
        return;
    };
    theirs.use_ring();
    let _ = theirs.write(&[IoSlice::new(&[HONEST; RING][..length(&mut program) / 2])], 0);
    let mut written = 0;
    for _ in 0..program.byte() & 31 {
        peer.scribble(&mut program);
        let mut buf = vec![0; length(&mut program)];
        if program.byte() & 1 == 0 {
            buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = number(written + at));
            if stream.write(&[IoSlice::new(&buf)], 0) == Err(crate::Stop::Full) {
                stream.turn();
            } else {
                written = stream.totals().sent as usize;
            }
        } else {
            let _ = stream.read(&mut [IoSliceMut::new(&mut buf)], program.byte() & 1 == 0);
            let _ = stream.available();
        }
    }
    let known = stream.available();
    stream.freeze();
    flush_all(&stream, &peer, &mut program, written);
    take_all(&stream, &peer, &mut program, known.unwrap_or(0));
}

/// What lies at a position.
fn number(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn flush_all(stream: &Stream, peer: &Peer, program: &mut Program<'_>, written: usize) {
    peer.scribble_control(program);
    let owed = stream.own_leftover().unwrap_or(0);
    assert!(owed <= written && owed <= RING);
    let mut done = stream.begin_flush();
    let mut pieces = 0;
    while done < owed {
        peer.scribble_control(program);
        let most = length(program).max(1);
        let mut sent = Vec::new();
        for span in stream.own_leftover_at(done, most).into_iter().flatten() {
            let mut part = vec![0; span.len()];
            assert!(span.copy_to(&mut part) > 0);
            sent.append(&mut part);
        }
        assert_eq!(sent.len(), most.min(owed - done), "{done} of {owed}");
        for (at, byte) in sent.iter().enumerate() {
            assert_eq!(*byte, number(written - owed + done + at), "byte {} of {owed}", done + at);
        }
        (done, pieces) = (done + sent.len(), pieces + 1);
        assert!(pieces <= owed);
        stream.set_flushing(done);
        assert_eq!(stream.own_leftover().unwrap_or(0), owed);
    }
    stream.set_flushed(done);
}

fn take_all(stream: &Stream, peer: &Peer, program: &mut Program<'_>, known: usize) {
    let owed = stream.peer_leftover().unwrap_or(0);
    assert!((known..=RING).contains(&owed), "{known} were there, {owed} are left");
    let (mut done, mut news) = (0, 0);
    while done < owed && !stream.peer_flushes() {
        peer.scribble_control(program);
        let mut buf = vec![0; length(program).max(1)];
        let len = stream.copy_unflushed(done, &mut buf);
        assert!(len > 0 && done + len <= owed);
        if !stream.take_unflushed(done, len) {
            break;
        }
        done += len;
        assert!(stream.flush_news() >= news, "what was said is said");
        news = stream.flush_news();
    }
    peer.scribble_control(program);
    let flushed = stream.peer_flushed();
    peer.scribble_control(program);
    assert!(
        flushed.is_none_or(|flushed| flushed <= owed && stream.peer_flushed() >= Some(flushed))
    );
    assert_eq!(stream.peer_leftover().unwrap_or(0), owed);
}

fn assert_other_ring_untouched(hostile: &Mapping, layout: Layout, side: usize) {
    let mut bytes = vec![1; layout.ring_bytes(1 - side) as usize];
    let at = CONTROL_BYTES + if side == 0 { layout.ring_bytes(0) as usize } else { 0 };
    if let Some(span) = hostile.span(at, bytes.len()) {
        span.copy_to(&mut bytes);
    }
    assert!(bytes.iter().all(|byte| *byte == 0), "a write went beyond its ring");
}

/// An inbox whose peer is hostile.
struct HostileInbox {
    inbox: Inbox,
    /// The peer's view of its region.
    hostile: Mapping,
}

fn make_inbox() -> Option<HostileInbox> {
    let NewSegment { segment, mapping: hostile } =
        Segment::create("fuzz", Inbox::LEN, Access::ReadWrite).ok()?;
    let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok();
    let inbox = Inbox::new(segment.map(Access::ReadWrite).ok()?, event()?, event()?)?;
    Some(HostileInbox { inbox, hostile })
}

/// An inbox whose peers do what `bytes` say.
pub fn inbox(bytes: &[u8]) {
    let Some(HostileInbox { inbox, hostile }) = make_inbox() else { return };
    let mut program = Program::new(bytes);
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        let slot = u32::from_le_bytes(program.take()) >> (step >> 4 & 15);
        match step & 15 {
            0..6 => {
                // Any word, or one of the first, where the bells and summaries are.
                let end = if step & 16 == 0 { Inbox::LEN } else { 2048 };
                let at = slot as usize * 8 % end;
                let value = if step & 1 == 0 { u64::MAX } else { position(&mut program) };
                hostile.word64(at).unwrap().store(value, Ordering::Relaxed);
            }
            6..9 => take(&inbox, false),
            9 => take(&inbox, true),
            10 => inbox.announce(),
            11 => inbox.withdraw(),
            12 => inbox.clear_event(),
            13 => {
                inbox.post_ready(SlotNumber(slot));
            }
            14 => _ = inbox.post_attention(SlotNumber(slot)),
            _ => {
                inbox.post_own(SlotNumber(slot % Inbox::SLOTS));
                assert!(is_readable(&inbox), "our own word is never kept from us");
            }
        }
    }
    take(&inbox, false);
    assert!(!inbox.has_ready());
}

/// Takes all bits: each names a slot there is, and once.
fn take(inbox: &Inbox, attention: bool) {
    let mut last = None;
    let mut found = |slot: SlotNumber| {
        assert!(
            slot.0 < Inbox::SLOTS && last.is_none_or(|last| last < slot),
            "{slot:?} after {last:?}"
        );
        last = Some(slot);
    };
    if attention {
        inbox.take_attention(&mut found);
    } else {
        inbox.take_ready(&mut |slot, _| found(slot));
    }
}

fn is_readable(inbox: &Inbox) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = inbox.ready_fd();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)) == Ok(1)
}
