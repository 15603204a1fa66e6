//! What an entry of the descriptor table names: the slot of a session or of an epoll set, in one
//! process of a line of descent by `fork`.
//!
//! Not here: the sessions and the sets (`session::pool`, `ready::sets`), and which process this one
//! is (`process::library`).

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

/// Bits of a word that give the slot; the higher bits give the process.
const SLOT_BITS: u32 = 20;

/// A place in a process's pool of sessions, or in its pool of epoll sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u32);

impl Slot {
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the subject that [`Slot::from_event`] reads, for the data of a kernel event.
    pub(crate) fn event_subject(self) -> u64 {
        self.0.into()
    }

    /// Reads the slot from the low half of a kernel event's data.
    pub(crate) const fn from_event(data: u64) -> Self {
        Self(data as u32)
    }
}

/// A process in a line of descent by `fork`, counted from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessNumber(pub(crate) u32);

impl ProcessNumber {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot of one process's, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotWord(NonZeroU32);

impl SlotWord {
    /// Makes the word of a slot. `None`: the process is too far down the line of descent.
    #[inline]
    pub(crate) fn new(process: ProcessNumber, slot: Slot) -> Option<Self> {
        NonZeroU32::new((process.0 << SLOT_BITS) + slot.0 + 1).map(Self)
    }

    #[inline]
    pub(crate) const fn process(self) -> ProcessNumber {
        ProcessNumber((self.0.get() - 1) >> SLOT_BITS)
    }

    #[inline]
    pub(crate) const fn slot(self) -> Slot {
        Slot((self.0.get() - 1) & ((1 << SLOT_BITS) - 1))
    }

    fn to_word(word: Option<Self>) -> u32 {
        word.map_or(0, |word| word.0.get())
    }

    fn from_word(word: u32) -> Option<Self> {
        NonZeroU32::new(word).map(Self)
    }
}

/// A [`SlotWord`] of a table entry, or none.
#[derive(Debug, Default)]
pub(crate) struct AtomicSlotWord(AtomicU32);

impl AtomicSlotWord {
    #[inline]
    pub(crate) fn load(&self, order: Ordering) -> Option<SlotWord> {
        SlotWord::from_word(self.0.load(order))
    }

    #[inline]
    pub(crate) fn store(&self, word: Option<SlotWord>, order: Ordering) {
        self.0.store(SlotWord::to_word(word), order);
    }

    /// Stores `word` and returns what was there.
    pub(crate) fn swap(&self, word: Option<SlotWord>, order: Ordering) -> Option<SlotWord> {
        SlotWord::from_word(self.0.swap(SlotWord::to_word(word), order))
    }

    /// Stores `new` if `current` is there.
    ///
    /// # Errors
    /// What is there instead.
    pub(crate) fn exchange(
        &self,
        current: Option<SlotWord>,
        new: Option<SlotWord>,
    ) -> Result<(), Option<SlotWord>> {
        let (current, new) = (SlotWord::to_word(current), SlotWord::to_word(new));
        let exchanged = self.0.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst);
        exchanged.map(drop).map_err(SlotWord::from_word)
    }
}

/// An epoll set of this process as offers name it: its slot counted from 1, and 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SetNumber(u32);

impl SetNumber {
    pub(crate) const NONE: Self = Self(0);

    /// Takes the number as it stands in an offer (`offer_t` of `idl/session.idl`).
    pub(crate) const fn of_offer(number: u32) -> Self {
        Self(number)
    }

    pub(crate) const fn of_slot(slot: Slot) -> Self {
        Self(slot.0 + 1)
    }

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the number as it stands in an offer.
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn slot(self) -> Option<Slot> {
        self.0.checked_sub(1).map(Slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_its_process_and_its_slot() {
        for (process, number) in [(0, 0), (0, 7), (31, 0), (31, (1 << SLOT_BITS) - 2)] {
            let word = SlotWord::new(ProcessNumber(process), Slot::new(number)).unwrap();
            assert_eq!((word.process().0, word.slot().number()), (process, number));
        }
    }

    #[test]
    fn a_word_is_exchanged_only_for_what_is_there() {
        let word = |number| SlotWord::new(ProcessNumber(1), Slot::new(number));
        let entry = AtomicSlotWord::default();
        assert_eq!(entry.exchange(word(3), word(4)), Err(None));
        assert_eq!(entry.exchange(None, word(3)), Ok(()));
        assert_eq!(entry.exchange(None, word(4)), Err(word(3)));
        assert_eq!(entry.swap(None, Ordering::SeqCst), word(3));
        assert_eq!(entry.load(Ordering::SeqCst), None);
    }

    #[test]
    fn a_set_is_named_from_one() {
        assert!(SetNumber::default().slot().is_none());
        assert_eq!(SetNumber::of_slot(Slot::new(4)).slot(), Some(Slot::new(4)));
        assert_eq!(SetNumber::of_slot(Slot::new(4)).number(), 5);
    }
}
