//! The order of requests: their numbers, and the receiver's choice of the next request.
//!
//! # Theory of operation
//! A sender has one *call line*, where a call waits for its answer in place, and a ring of *slots*.
//! Both number their requests, the call line with the bit [`DIRECT`]. The tag of a line holds
//! number and kind. The top byte of a call's meta word names the slot's request after which the
//! call was published, so the receiver takes all requests in the order in which they were made, on
//! both kinds of line. A slot is free again when the receiver has counted it as consumed. The
//! models are `tests/loom_ring.rs`. Not here: the meaning of a request, and sleeping
//! ([`crate::park`]).

use crate::Line;
use crate::sync::{AtomicU32, Ordering};

/// Numbers of requests on the call line have this bit; numbers of requests in slots do not.
pub const DIRECT: u32 = 1 << 31;
/// The kind, in a tag, of a request that wants an answer.
pub const KIND_CALL: u8 = 1;
/// The least kind that is an answer.
pub const KIND_ANSWER: u8 = 6;

/// The sequence number of a request.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seq(pub u32);

impl Seq {
    /// The number before the first one on the call line.
    pub const DIRECT: Self = Self(DIRECT);

    /// Returns true for a number of the call line.
    #[inline(always)]
    pub fn is_direct(self) -> bool {
        self.0 & DIRECT != 0
    }
}

/// Returns the number after `seq` on the same kind of line.
#[inline(always)]
pub fn next_seq(seq: Seq) -> Seq {
    Seq((seq.0.wrapping_add(1) & !DIRECT) | (seq.0 & DIRECT))
}

/// Returns the number of slots' requests between `from` and `to`.
#[inline(always)]
pub fn distance(from: Seq, to: Seq) -> u32 {
    to.0.wrapping_sub(from.0) & !DIRECT
}

/// Returns the number in a tag.
#[inline(always)]
pub fn tag_seq(tag: u64) -> Seq {
    Seq(tag as u32)
}

#[inline(always)]
fn tag_kind(tag: u64) -> u8 {
    (tag >> 48) as u8
}

/// Returns true if a tag is the answer to call `seq`.
#[inline(always)]
pub fn is_answer(tag: u64, seq: Seq) -> bool {
    tag_seq(tag) == seq && tag_kind(tag) >= KIND_ANSWER
}

/// Returns true if a tag is call `seq`.
#[inline(always)]
pub fn is_call(tag: u64, seq: Seq) -> bool {
    tag_seq(tag) == seq && tag_kind(tag) == KIND_CALL
}

/// Returns the top byte of the meta word of a call published after request `last` of the slots.
#[inline(always)]
pub fn after(last: Seq) -> u8 {
    last.0 as u8
}

/// The receiver's expectations.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Next number on the call line.
    pub call: Seq,
    /// Next number in the slots.
    pub seq: Seq,
    /// The number of slots, a power of two.
    pub slots: u32,
    /// True while the slots are used for the first time: an old tag is 0 then.
    pub is_first_round: bool,
    /// True if a call may be taken: no request in the slots is incomplete.
    pub may_call: bool,
}

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing yet.
    Nothing,
    /// The request in the slot, with that tag.
    Slot(u64),
    /// The call on the call line, with that tag.
    Call(u64),
    /// The sender broke the protocol: a number is impossible.
    Wrong,
}

/// Checks the call line and the next slot, and returns the next request.
#[inline(always)]
pub fn next(call_line: &Line, slot: &Line, expected: Expected) -> Next {
    // The slot is loaded before the call line, so that a call is not overtaken by a request
    // published after it.
    let slot_tag = slot.tag();
    let call_tag = call_line.tag();
    if is_call(call_tag, expected.call) && expected.may_call {
        return due(call_tag, call_line, slot, expected);
    }
    if tag_seq(slot_tag) == expected.seq {
        return Next::Slot(slot_tag);
    }
    let old = Seq(expected.seq.0.wrapping_sub(expected.slots) & !DIRECT);
    let is_old = if expected.is_first_round { slot_tag == 0 } else { tag_seq(slot_tag) == old };
    // A call with a number other than the last and the next one is impossible; other kinds are this
    // side's own answers.
    let is_wrong = tag_kind(call_tag) == KIND_CALL
        && tag_seq(call_tag) != expected.call
        && next_seq(tag_seq(call_tag)) != expected.call;
    if is_wrong || !is_old { Next::Wrong } else { Next::Nothing }
}

/// Returns the call on the call line, or the slot's request that was published before it.
#[inline(always)]
fn due(call_tag: u64, call_line: &Line, slot: &Line, expected: Expected) -> Next {
    let mut meta = [0];
    call_line.copy_out(&mut meta);
    if (meta[0] >> 56) as u8 == after(Seq(expected.seq.0.wrapping_sub(1))) {
        return Next::Call(call_tag);
    }
    // The slot's request was published before the visible call, so it must be visible too.
    let slot_tag = slot.tag();
    if tag_seq(slot_tag) == expected.seq { Next::Slot(slot_tag) } else { Next::Wrong }
}

/// Notes that the receiver has copied the slots' requests up to number `seq`. Returns true if the
/// sender must be rung, because it may wait for room.
#[inline(always)]
pub fn consume(consumed: &AtomicU32, want: &AtomicU32, seq: Seq) -> bool {
    // SYNC: release; pairs with the acquire load in `has_room`: our copies out of the slot are done
    // before the sender may use it again.
    consumed.store(seq.0, Ordering::Release);
    // No fence is needed: `want` only grows, so an old value can only cause a needless ring, and
    // the fence in `park::ring` decides whether the sender sleeps.
    distance(Seq(want.load(Ordering::Relaxed)), seq) < DIRECT / 2
}

/// Returns true if a sender that has published `seq` requests in slots has room for one more.
#[inline(always)]
pub fn has_room(consumed: &AtomicU32, seq: Seq, slots: u32) -> bool {
    // SYNC: acquire; pairs with the release store in `consume`.
    distance(Seq(consumed.load(Ordering::Acquire)), seq) < slots
}

/// Notes that the sender is about to wait for room: it is rung when half the slots are free.
#[inline(always)]
pub fn want_room(want: &AtomicU32, seq: Seq, slots: u32) {
    want.store(seq.0.wrapping_sub(slots / 2) & !DIRECT, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn tag(seq: u32, kind: u8) -> u64 {
        u64::from(seq) | u64::from(kind) << 48
    }

    #[test]
    fn numbers_wrap_within_their_kind() {
        assert_eq!(next_seq(Seq(DIRECT - 1)), Seq(0));
        assert_eq!(next_seq(Seq(u32::MAX)), Seq::DIRECT);
        assert_eq!(distance(Seq(DIRECT - 2), Seq(3)), 5);
    }

    #[test]
    fn a_call_waits_for_the_slots_before_it_and_for_no_other() {
        let (call_line, slot) = (Line::new(), Line::new());
        let mut expected = Expected {
            call: Seq(DIRECT | 1),
            seq: Seq(255),
            slots: 8,
            is_first_round: false,
            may_call: true,
        };
        slot.publish(tag(247, 2), 0, &[]);
        assert_eq!(next(&call_line, &slot, expected), Next::Nothing);
        let call = tag(DIRECT | 1, KIND_CALL);
        call_line.publish(call, 255 << 56, &[]);
        // The call was published after request 255, which cannot be missing then.
        assert_eq!(next(&call_line, &slot, expected), Next::Wrong);
        slot.publish(tag(255, 2), 0, &[]);
        assert_eq!(next(&call_line, &slot, expected), Next::Slot(tag(255, 2)));
        expected.seq = Seq(256);
        assert_eq!(next(&call_line, &slot, expected), Next::Call(call));
        expected.may_call = false;
        assert_eq!(next(&call_line, &slot, expected), Next::Wrong);
    }
}
