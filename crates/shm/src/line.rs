//! One message line: sixteen words whose first is the tag that publishes the rest.
//!
//! A line is two cache lines of 64 bytes. The writer stores words 1.. and then the tag with
//! release; the reader that sees the new tag sees the words. A short message needs words 1..8 only,
//! which lie in the tag's own cache line: one transfer brings flag and payload. Not here: the times
//! at which each side may write; the ring made of lines defines them ([`crate::ring`];
//! `docs/understand/ipc.md`, "The call line").

use crate::sync::{AtomicU64, Ordering};

/// Words of a line, tag included.
pub const LINE_WORDS: usize = 16;

/// A message line in shared memory.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Line {
    words: [AtomicU64; LINE_WORDS],
}

impl Line {
    /// Creates an empty line with tag 0.
    pub fn new() -> Self {
        Self { words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Stores `first` and `rest` in the words after the tag's and then publishes them with `tag`.
    /// Words of `rest` that do not fit the line are ignored.
    ///
    /// The stores follow one another with nothing between: a peer that polls the tag may take the
    /// cache line away at any time, and each time before the tag is stored costs another transfer
    /// in both directions.
    #[inline(always)]
    pub fn publish(&self, tag: u64, first: u64, rest: &[u64]) {
        self.words[1].store(first, Ordering::Relaxed);
        for (word, value) in self.words[2..].iter().zip(rest) {
            word.store(*value, Ordering::Relaxed);
        }
        // SYNC: release; pairs with the acquire load in `tag`.
        self.words[0].store(tag, Ordering::Release);
    }

    /// Loads the tag; all words stored before its publication are visible afterwards.
    #[inline(always)]
    pub fn tag(&self) -> u64 {
        // SYNC: acquire; pairs with the release store in `publish`.
        self.words[0].load(Ordering::Acquire)
    }

    /// Copies the first `words.len()` words after the tag out of the line, each loaded once.
    ///
    /// At most `LINE_WORDS - 1` words are copied; the rest of `words` is left alone.
    #[inline(always)]
    pub fn copy_out(&self, words: &mut [u64]) {
        for (value, word) in words.iter_mut().zip(&self.words[1..]) {
            *value = word.load(Ordering::Relaxed);
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}
