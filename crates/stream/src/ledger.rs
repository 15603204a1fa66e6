//! What the side that carries a session to another host says of it in the control page, for whoever
//! must go on if its process dies.
//!
//! The **claim** decides who has the session: the kernel, until the carrier has begun to take it
//! out; then the program, if it has taken it up; or nobody because it was called home before that.
//! If the server dies before the carrier has begun, the program keeps it in the kernel. Each step
//! is one exchange of one word, so both sides agree, whoever dies when. The **words** are what the
//! carrying side knows that the rings do not tell, written after each round; what they mean is the
//! carrier's and the engine's to agree on (`sojourn-pump`). Two copies take turns, so that a death
//! in the middle of one leaves the other whole. The **figures** are for people only: told now and
//! then, in one copy, so that what is read may be a mixture of two. Not used by streams between two
//! programs.

use core::sync::atomic::{AtomicU32, Ordering};

/// Words that can be told.
pub const LEDGER_WORDS: usize = 16;
/// Words of the figures.
pub const FIGURES_WORDS: usize = 16;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const REVOKED: u32 = 2;
const LOST: u32 = 3;
const TAKEN: u32 = 4;
const KEPT: u32 = 5;

/// See the head of this file. Any bytes are a ledger.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Ledger {
    claim: AtomicU32,
    /// Not 0: the carrying side has bytes for which there was no room.
    wants_room: AtomicU32,
    /// Which copy counts: its lowest bit.
    version: AtomicU32,
    copies: [[AtomicU32; LEDGER_WORDS]; 2],
    figures: [AtomicU32; FIGURES_WORDS],
    /// Not 0: the program reads from the kernel no more.
    has_given_up: AtomicU32,
}

impl Ledger {
    /// A ledger as it lies in a zeroed region.
    pub fn new() -> Self {
        Self {
            claim: AtomicU32::new(FREE),
            wants_room: AtomicU32::new(0),
            version: AtomicU32::new(0),
            copies: [const { [const { AtomicU32::new(0) }; LEDGER_WORDS] }; 2],
            figures: [const { AtomicU32::new(0) }; FIGURES_WORDS],
            has_given_up: AtomicU32::new(0),
        }
    }

    /// The program reads from the ring only: what is in the kernel is the carrier's to take.
    pub fn give_up_kernel(&self) {
        // SYNC: release; pairs with the acquire in `has_given_up`.
        self.has_given_up.store(1, Ordering::Release);
    }

    /// Whether that is so.
    pub fn has_given_up(&self) -> bool {
        // SYNC: acquire; pairs with the release in `give_up_kernel`.
        self.has_given_up.load(Ordering::Acquire) != 0
    }

    /// The carrier begins to take the session out of its socket. False: it is somebody's already.
    pub fn take(&self) -> bool {
        self.decide(FREE, TAKEN)
    }

    /// The carrier has not taken it out after all.
    pub fn put_down(&self) -> bool {
        self.decide(TAKEN, FREE)
    }

    /// This process carries the session from now on. False: it was revoked, or somebody does
    /// already.
    pub fn claim(&self) -> bool {
        self.decide(TAKEN, CLAIMED)
    }

    /// Nobody carries the session any more, unless somebody does already. For the carrier.
    pub fn revoke(&self) -> bool {
        self.decide(TAKEN, REVOKED)
    }

    /// Nobody takes the session out any more, unless somebody has begun to. For the carrier, which
    /// then puts the program's bytes into the socket.
    pub fn close(&self) -> bool {
        self.decide(FREE, REVOKED)
    }

    /// The same for the program, whose carrier is gone: it puts its bytes into the socket itself.
    pub fn keep(&self) -> bool {
        self.decide(FREE, KEPT)
    }

    /// Whether the program has kept it.
    pub fn is_kept(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == KEPT
    }

    /// Whether a program carries it, or has.
    pub fn is_claimed(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == CLAIMED
    }

    /// Nobody knows any more where the session stands, or it is over.
    pub fn lose(&self) {
        self.claim.store(LOST, Ordering::SeqCst);
    }

    /// Whether that is so.
    pub fn is_lost(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == LOST
    }

    fn decide(&self, from: u32, to: u32) -> bool {
        self.claim.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Tells the words. One thread at a time.
    pub fn tell(&self, words: &[u32; LEDGER_WORDS]) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        for (place, word) in self.copies[(version & 1) as usize].iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
        // SYNC: release; pairs with the acquire in `told`.
        self.version.store(version, Ordering::Release);
    }

    /// The words as they were last told: exactly so if whoever told them is dead, else perhaps a
    /// mixture of two.
    pub fn told(&self) -> [u32; LEDGER_WORDS] {
        // SYNC: acquire; pairs with the release in `tell`.
        let version = self.version.load(Ordering::Acquire);
        core::array::from_fn(|at| self.copies[(version & 1) as usize][at].load(Ordering::Relaxed))
    }

    /// The words as [`Ledger::told`] says them, of a copy of the ledger's bytes. `None`: it is too
    /// short.
    pub(crate) fn told_in(bytes: &[u8]) -> Option<[u32; LEDGER_WORDS]> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + size_of::<u32>())?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let copy = (word(core::mem::offset_of!(Self, version))? & 1) as usize;
        let start = core::mem::offset_of!(Self, copies) + copy * size_of::<[u32; LEDGER_WORDS]>();
        let mut words = [0; LEDGER_WORDS];
        for (place, told) in words.iter_mut().enumerate() {
            *told = word(start + place * size_of::<u32>())?;
        }
        Some(words)
    }

    /// Where the figures are, from the ledger's beginning (bytes).
    pub(crate) const FIGURES_OFFSET: usize = core::mem::offset_of!(Self, figures);

    /// Tells the figures.
    pub fn tell_figures(&self, words: &[u32; FIGURES_WORDS]) {
        for (place, word) in self.figures.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    /// The carrying side wants to know when there is room. It looks again after this.
    pub fn want_room(&self) {
        // SYNC: full order with the reader, which makes room and then looks here (`takes_want`).
        self.wants_room.store(1, Ordering::SeqCst);
    }

    /// After having made room: whether the carrying side wants to know. It is asked once.
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
        assert_eq!(ledger.told(), [0; LEDGER_WORDS]);
        for word in 1..5 {
            ledger.tell(&[word; LEDGER_WORDS]);
            assert_eq!(ledger.told(), [word; LEDGER_WORDS]);
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
            Ledger::told_in(bytes)
        };
        for word in 0..5 {
            ledger.tell(&core::array::from_fn(|at| word * 100 + at as u32));
            assert_eq!(copied(), Some(ledger.told()));
        }
        assert_eq!(Ledger::told_in(&[0; 64]), None);
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
