//! What is kept, for each thread, of real-time signals that were put off, so that they come in
//! their order.
//!
//! The order: the head of `deferred`, which keeps and takes it.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// Real-time signals that can be put in order at a time; more of them are delivered as they come.
const TURNS: usize = 4;
/// Words of the kernel's part of a `siginfo_t`.
const WORDS: usize = 6;

/// What a signal says.
pub(crate) type Said = [u64; WORDS];

/// What is kept of one signal. Only its own thread looks here, in handlers of this one signal, or
/// while it is blocked.
#[derive(Default)]
pub(crate) struct Turn {
    /// 0: nothing.
    pub(crate) signal: AtomicU32,
    /// What the next delivery is to say.
    pub(crate) next: UnsafeCell<Said>,
    /// What the one sent again says.
    pub(crate) last: UnsafeCell<Said>,
}

/// A thread's.
#[derive(Default)]
pub(crate) struct Turns([Turn; TURNS]);

impl Turns {
    /// What is kept of that signal; of 0, room for another one.
    pub(crate) fn of(&self, signal: u32) -> Option<&Turn> {
        self.0.iter().find(|turn| turn.signal.load(Ordering::Relaxed) == signal)
    }
}
