//! The bitmaps of an inbox: 65,536 bits with two levels of summary, so that the cost of a look
//! grows with the number of bits that are set.
//!
//! A poster sets the bit, then the bit of its word in the summary, then the bit of that word in the
//! top word. It skips bits that are set already, with a full fence before each look. The taker
//! clears from the top down. So a poster that finds a level set knows that the taker will clear it,
//! and look at the levels below, only later. A poster that dies half-way leaves nothing on which a
//! later poster would rely. Not here: the times of posts (`arrivals`), and the event (`doorbell`).
//! Model: `tests/loom_inbox.rs`.

use crate::sync::fence_after_update;
use sojourn_shm::{AtomicU64, Ordering, fence};

/// Bits used of each word; few in models, where every word costs.
const RADIX: usize = if cfg!(loom) { 2 } else { 64 };
/// Slots of a bitmap.
pub const SLOTS: u32 = if cfg!(loom) { 8 } else { 65_536 };
const WORDS: usize = SLOTS as usize / RADIX;
const SUMMARY: usize = WORDS / RADIX;
const UNUSED: usize = if cfg!(loom) { 0 } else { 15 };

/// A bitmap in shared memory.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Bits {
    top: AtomicU64,
    unused: [AtomicU64; UNUSED],
    summary: [AtomicU64; SUMMARY],
    words: [AtomicU64; WORDS],
}

impl Bits {
    /// Makes a bitmap with no bit set.
    pub fn new() -> Self {
        Self {
            top: AtomicU64::new(0),
            unused: core::array::from_fn(|_| AtomicU64::new(0)),
            summary: core::array::from_fn(|_| AtomicU64::new(0)),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Sets the bit of `slot`; returns true if it was clear. Slots beyond [`SLOTS`] are ignored.
    pub fn post(&self, slot: u32) -> bool {
        let slot = slot as usize;
        let Some(word) = self.words.get(slot / RADIX) else { return false };
        let was_clear = set(word, slot % RADIX);
        set(&self.summary[slot / RADIX / RADIX], slot / RADIX % RADIX);
        set(&self.top, slot / RADIX / RADIX);
        was_clear
    }

    /// Returns true if a bit is set, by one load.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.top.load(Ordering::Acquire) != 0
    }

    /// Clears all bits that are set, and calls `found` with each. One taker at a time.
    pub fn take(&self, found: &mut dyn FnMut(u32)) {
        if !self.has_any() {
            return;
        }
        // The swaps need no fences between them: a poster's update of a lower word that comes after
        // the swap of that word sees the swap, and with it that the upper words were cleared. A
        // peer can set bits of the top word that mean nothing.
        each(self.top.swap(0, Ordering::AcqRel) & ((1 << SUMMARY) - 1), |high| {
            each(self.summary[high].swap(0, Ordering::AcqRel), |middle| {
                let word = high * RADIX + middle;
                let bits = self.words[word].swap(0, Ordering::AcqRel);
                // SYNC: full fence; pairs with those in `set`: a poster that found its bit set, and
                // left it at that, has published what the bit stands for before the taker looks at
                // that.
                fence_after_update();
                each(bits, |low| found((word * RADIX + low) as u32));
            });
        });
    }
}

impl Default for Bits {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets a bit unless it is set; returns true if it was clear.
fn set(word: &AtomicU64, bit: usize) -> bool {
    // SYNC: full fence; pairs with those in `take`.
    fence(Ordering::SeqCst);
    let bit = 1 << bit;
    word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::AcqRel) & bit == 0
}

fn each(mut bits: u64, mut what: impl FnMut(usize)) {
    while bits != 0 {
        what(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}
