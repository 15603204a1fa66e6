//! The ledger of a session that is carried to another host: words in the control page, written by
//! the side that carries it, for the process that must go on if that side's process dies.
//!
//! The **claim** decides where the session is: in the kernel, until the carrier has begun to take
//! it out; then with the program, once that has claimed it; or with nobody, because it was called
//! home before that. If the server dies before the carrier has begun, the program keeps the session
//! in the kernel. Each step is one exchange of one word, so both sides agree, whichever of them
//! dies when. The **words** are the carrying side's state that the rings do not show, written after
//! each round; their meaning is `sojourn-pump`'s. Two copies take turns, so that a death in the
//! middle of one leaves the other whole. The **figures** are for people only: they are written now
//! and then, in one copy, so that a reader may see a mixture of two. Streams between two programs
//! use none of this.

use crate::times::{Times, TimingRequest};
use core::sync::atomic::{AtomicU32, Ordering};

/// The number of words.
pub const LEDGER_WORDS: usize = 16;
/// The number of figures.
pub const FIGURES_WORDS: usize = 16;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const REVOKED: u32 = 2;
const LOST: u32 = 3;
const TAKEN: u32 = 4;
const KEPT: u32 = 5;
const CLOSED: u32 = 6;

/// The ledger. Any bytes are a valid one.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Ledger {
    claim: AtomicU32,
    /// Not 0: the carrying side has bytes for which there was no room.
    wants_room: AtomicU32,
    /// The lowest bit selects the copy that counts.
    version: AtomicU32,
    /// Beside words that each round looks at anyhow.
    wish: TimingRequest,
    copies: [[AtomicU32; LEDGER_WORDS]; 2],
    figures: [AtomicU32; FIGURES_WORDS],
    /// Not 0: the program reads from the kernel no more.
    has_given_up: AtomicU32,
    /// Not 0: the program has to give up the kernel, whatever it has not read there.
    must_give_up: AtomicU32,
    /// The reason for which the carrier calls the session home; 0: none yet.
    reason: AtomicU32,
    times: Times,
}

impl Ledger {
    /// Makes a ledger as it lies in a zeroed region.
    pub fn new() -> Self {
        Self {
            claim: AtomicU32::new(FREE),
            wants_room: AtomicU32::new(0),
            version: AtomicU32::new(0),
            wish: TimingRequest::new(),
            copies: [const { [const { AtomicU32::new(0) }; LEDGER_WORDS] }; 2],
            figures: [const { AtomicU32::new(0) }; FIGURES_WORDS],
            has_given_up: AtomicU32::new(0),
            must_give_up: AtomicU32::new(0),
            reason: AtomicU32::new(0),
            times: Times::new(),
        }
    }

    /// Tells the program the reason for which the carrier calls the session home, before it freezes
    /// the stream. People are shown it; nothing is decided by it.
    pub fn publish_reason(&self, reason: u32) {
        self.reason.store(reason, Ordering::Relaxed);
    }

    /// Returns the reason that the carrier has published; 0 if it has not.
    pub fn reason(&self) -> u32 {
        self.reason.load(Ordering::Relaxed)
    }

    /// Notes that the program reads from the ring only: the carrier takes bytes that are in the
    /// kernel.
    pub fn give_up_kernel(&self) {
        // SYNC: release; pairs with the acquire in `has_given_up`.
        self.has_given_up.store(1, Ordering::Release);
    }

    /// Returns true if the program has given up the kernel.
    pub fn has_given_up(&self) -> bool {
        // SYNC: acquire; pairs with the release in `give_up_kernel`.
        self.has_given_up.load(Ordering::Acquire) != 0
    }

    /// Has the program give up the kernel even where it has bytes to read there. What the program
    /// writes waits in its ring until then.
    pub fn urge(&self) {
        // SYNC: release; pairs with the acquire in `must_give_up`.
        self.must_give_up.store(1, Ordering::Release);
    }

    /// Returns true if the program has to give up the kernel now.
    pub fn must_give_up(&self) -> bool {
        // SYNC: acquire; pairs with the release in `urge`.
        self.must_give_up.load(Ordering::Acquire) != 0
    }

    /// Takes the session for the carrier, which begins to take it out of its socket. Returns false
    /// if it is decided already.
    pub fn take(&self) -> bool {
        self.decide(FREE, TAKEN)
    }

    /// Puts the session down again: the carrier has not taken it out after all.
    pub fn put_down(&self) -> bool {
        self.decide(TAKEN, FREE)
    }

    /// Claims the session for this process, which carries it from now on. Returns false if it was
    /// revoked, or is claimed already.
    pub fn claim(&self) -> bool {
        self.decide(TAKEN, CLAIMED)
    }

    /// Revokes the session for the carrier, unless a process has claimed it.
    pub fn revoke(&self) -> bool {
        self.decide(TAKEN, REVOKED)
    }

    /// Returns true if the carrier has revoked the session: it had begun to take it out.
    pub fn is_revoked(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == REVOKED
    }

    /// Closes the session for the carrier, which then puts the program's bytes into the socket;
    /// nobody takes the session out any more. Returns false if that has begun.
    pub fn close(&self) -> bool {
        self.decide(FREE, CLOSED)
    }

    /// Keeps the session for the program, whose carrier is gone: the program puts its bytes into
    /// the socket itself. Returns false if the carrier has begun.
    pub fn keep(&self) -> bool {
        self.decide(FREE, KEPT)
    }

    /// Returns true if the program has kept the session.
    pub fn is_kept(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == KEPT
    }

    /// Returns true if a program carries the session, or has.
    pub fn is_claimed(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == CLAIMED
    }

    /// Notes that nobody knows the state of the session any more, or that it is over.
    pub fn lose(&self) {
        self.claim.store(LOST, Ordering::SeqCst);
    }

    /// Returns true if the session is lost.
    pub fn is_lost(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == LOST
    }

    fn decide(&self, from: u32, to: u32) -> bool {
        self.claim.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Writes the words. One thread at a time.
    pub fn publish(&self, words: &[u32; LEDGER_WORDS]) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        for (place, word) in self.copies[(version & 1) as usize].iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        // SYNC: release; pairs with the acquire in `published`.
        self.version.store(version, Ordering::Release);
    }

    /// Reads the words as they were last written: exactly, if the writer is dead, and else perhaps
    /// a mixture of two.
    pub fn published(&self) -> [u32; LEDGER_WORDS] {
        // SYNC: acquire; pairs with the release in `publish`.
        let version = self.version.load(Ordering::Acquire);
        core::array::from_fn(|at| self.copies[(version & 1) as usize][at].load(Ordering::Relaxed))
    }

    /// Reads the words, like [`Ledger::published`], from a copy of the ledger's bytes. Returns
    /// `None` if the copy is too short.
    pub(crate) fn published_in(bytes: &[u8]) -> Option<[u32; LEDGER_WORDS]> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + size_of::<u32>())?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let copy = (word(core::mem::offset_of!(Self, version))? & 1) as usize;
        let start = core::mem::offset_of!(Self, copies) + copy * size_of::<[u32; LEDGER_WORDS]>();
        let mut words = [0; LEDGER_WORDS];
        for (place, value) in words.iter_mut().enumerate() {
            *value = word(start + place * size_of::<u32>())?;
        }
        Some(words)
    }

    /// The offset of the figures from the ledger's beginning (bytes).
    pub(crate) const FIGURES_OFFSET: usize = core::mem::offset_of!(Self, figures);

    /// Writes the figures.
    pub fn publish_figures(&self, words: &[u32; FIGURES_WORDS]) {
        for (place, word) in self.figures.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    /// The offsets of the wish for times and of the times, from the ledger's beginning (bytes).
    pub(crate) const TIMES_OFFSETS: [usize; 2] =
        [core::mem::offset_of!(Self, wish), core::mem::offset_of!(Self, times)];

    /// Returns the times of the layers, if somebody wants them now.
    #[inline]
    pub fn times(&self) -> Option<&Times> {
        self.wish.is_there().then_some(&self.times)
    }

    /// Ends a wish for times that is over; `now_s`: the monotonic clock.
    pub fn expire_times(&self, now_s: u64) {
        self.wish.expire(now_s);
    }

    /// Notes that the carrying side wants to hear of room. It looks again after this.
    pub fn want_room(&self) {
        // SYNC: full order with the reader, which makes room and then looks here (`takes_want`).
        self.wants_room.store(1, Ordering::SeqCst);
    }

    /// Returns true if the carrying side wants to hear of room, which the caller has just made. It
    /// hears once.
    #[inline]
    pub fn takes_want(&self) -> bool {
        // SYNC: pairs with `want_room`: room is made before this look.
        core::sync::atomic::fence(Ordering::SeqCst);
        self.wants_room.load(Ordering::Relaxed) != 0
            && self.wants_room.swap(0, Ordering::SeqCst) != 0
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_decides_for_good() {
        let ledger = Ledger::new();
        assert!(!ledger.claim() && !ledger.revoke(), "nobody has taken it out yet");
        assert!(ledger.take() && ledger.claim() && ledger.is_claimed());
        assert!(!ledger.claim() && !ledger.revoke() && !ledger.put_down());
        let ledger = Ledger::new();
        assert!(ledger.take() && ledger.revoke() && !ledger.claim());
        assert!(!ledger.is_lost());
        ledger.lose();
        assert!(ledger.is_lost() && !ledger.claim() && !ledger.revoke());
    }

    #[test]
    fn what_was_not_taken_one_side_keeps() {
        let ledger = Ledger::new();
        assert!(ledger.keep() && ledger.is_kept());
        assert!(!ledger.close() && !ledger.take());
        let ledger = Ledger::new();
        assert!(ledger.close() && !ledger.keep() && !ledger.is_kept());
        let ledger = Ledger::new();
        assert!(ledger.take() && !ledger.keep() && !ledger.close());
        assert!(ledger.put_down() && ledger.keep());
    }

    #[test]
    fn the_last_words_are_told() {
        let ledger = Ledger::new();
        assert_eq!(ledger.published(), [0; LEDGER_WORDS]);
        for word in 1..5 {
            ledger.publish(&[word; LEDGER_WORDS]);
            assert_eq!(ledger.published(), [word; LEDGER_WORDS]);
        }
    }

    #[test]
    fn a_copy_says_the_same() {
        let ledger = Ledger::new();
        let copied = || {
            // SAFETY: atomics in order and nothing between them that is not initialized; nobody
            // writes meanwhile.
            let bytes = unsafe {
                core::slice::from_raw_parts((&raw const ledger).cast::<u8>(), size_of::<Ledger>())
            };
            Ledger::published_in(bytes)
        };
        for word in 0..5 {
            ledger.publish(&core::array::from_fn(|at| word * 100 + at as u32));
            assert_eq!(copied(), Some(ledger.published()));
        }
        assert_eq!(Ledger::published_in(&[0; 64]), None);
    }

    #[test]
    fn the_kernel_is_given_up_for_good() {
        let ledger = Ledger::new();
        assert!(!ledger.has_given_up());
        ledger.give_up_kernel();
        assert!(ledger.take() && ledger.put_down() && ledger.has_given_up());
    }

    #[test]
    fn room_is_asked_for_once() {
        let ledger = Ledger::new();
        assert!(!ledger.takes_want());
        ledger.want_room();
        assert!(ledger.takes_want() && !ledger.takes_want());
    }
}
