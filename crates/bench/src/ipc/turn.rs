//! Two words in shared memory by which two processes take turns: spinning, or through bare futexes.
//!
//! It is the floor, and the bell of rivals that have none of their own. It is not how Sojourn
//! waits.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::row::Mode;
use crate::os::{self, Shared};

/// Where the client's word is.
const REQUEST: usize = 0;
/// Where the server's word is: far enough that neither shares a line, or a prefetched pair of
/// lines.
const REPLY: usize = 128;

/// One side's view.
pub(super) struct Turn {
    memory: Shared,
    spins: bool,
    number: u32,
}

impl Turn {
    /// Over the first 256 bytes of `memory`.
    pub(super) fn new(memory: Shared, mode: Mode) -> Self {
        Self { memory, spins: mode.spins(), number: 0 }
    }

    /// Client: it is the server's turn.
    #[inline]
    pub(super) fn request(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.give(REQUEST);
    }

    /// Client: until the server has answered.
    #[inline]
    pub(super) fn await_reply(&self) {
        self.take(REPLY);
    }

    /// Server: until the client has asked.
    #[inline]
    pub(super) fn await_request(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.take(REQUEST);
    }

    /// Server: it is the client's turn.
    #[inline]
    pub(super) fn reply(&self) {
        self.give(REPLY);
    }

    #[inline]
    fn give(&self, offset: usize) {
        let word: &AtomicU32 = self.memory.word(offset);
        // SYNC: pairs with the acquire loads in `take` of the other side.
        word.store(self.number, Release);
        if !self.spins {
            os::futex_wake(word);
        }
    }

    #[inline]
    fn take(&self, offset: usize) {
        let word = self.memory.word(offset);
        // SYNC: pairs with the release store in `give`.
        while word.load(Acquire) != self.number {
            if !self.spins {
                os::futex_wait(word, self.number.wrapping_sub(1));
            }
        }
    }
}
