//! The information of deferred real-time signals that is kept for each thread, so that they are
//! reported in order.
//!
//! Not here: the algorithm (`deferred`). Read its theory of operation first.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// The number of real-time signals that are kept in order at a time. Further ones are delivered as
/// they come.
const TURNS: usize = 4;
/// Words that the kernel uses of a `siginfo_t`.
const WORDS: usize = 6;

/// The information of a signal.
pub(crate) type SignalInfo = [u64; WORDS];

/// The information that is kept for one signal. Only its own thread accesses it, in handlers of
/// that signal or while the signal is blocked.
#[derive(Default)]
pub(crate) struct Turn {
    /// The number of the signal; 0 if the place is free.
    pub(crate) signal: AtomicU32,
    /// The information that the next delivery reports.
    pub(crate) next: UnsafeCell<SignalInfo>,
    /// The information of the signal that was sent again.
    pub(crate) last: UnsafeCell<SignalInfo>,
}

/// The kept information of one thread.
#[derive(Default)]
pub(crate) struct Turns([Turn; TURNS]);

impl Turns {
    /// Returns the place of a signal; for 0, a free place.
    pub(crate) fn of(&self, signal: u32) -> Option<&Turn> {
        self.0.iter().find(|turn| turn.signal.load(Ordering::Relaxed) == signal)
    }
}
