//! Two words in shared memory by which two processes take turns: spinning, or through bare futexes
//! (futex(2)).
//!
//! This is the floor, and the doorbell of rivals that have none of their own. Sojourn waits
//! differently (`park` in `sojourn-shm`).

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::row::Mode;
use crate::os::{self, Shared};

/// Offset of the client's word.
const REQUEST: usize = 0;
/// Offset of the server's word: far enough that the two words share neither a cache line nor a pair
/// of lines that the processor fetches together.
const REPLY: usize = 128;

/// One side's view of the two words.
pub(super) struct Turn {
    memory: Shared,
    spins: bool,
    number: u32,
}

impl Turn {
    /// Uses the first 256 bytes of `memory`.
    pub(super) fn new(memory: Shared, mode: Mode) -> Self {
        Self { memory, spins: mode.spins(), number: 0 }
    }

    /// Client: hands the turn to the server.
    #[inline]
    pub(super) fn request(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.give(REQUEST);
    }

    /// Client: waits until the server has answered.
    #[inline]
    pub(super) fn await_reply(&self) {
        self.take(REPLY);
    }

    /// Server: waits until the client has asked.
    #[inline]
    pub(super) fn await_request(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.take(REQUEST);
    }

    /// Server: hands the turn to the client.
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
        // SYNC: pairs with the release store in `give` of the other side.
        while word.load(Acquire) != self.number {
            if !self.spins {
                os::futex_wait(word, self.number.wrapping_sub(1));
            }
        }
    }
}
