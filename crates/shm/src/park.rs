//! Parking: the protocol by which a waiter sleeps and a publisher wakes it, without losing a
//! wake-up.
//!
//! # Theory of operation
//! The waiter owns a word, the *bell*, in memory both sides can write. The two sides solve Dekker's
//! mutual-exclusion problem:
//!
//! | publisher ([`ring`]) | waiter ([`announce`]) |
//! |---|---|
//! | publish | bell := how it sleeps |
//! | full fence | full fence |
//! | bell asleep? then bell := [`AWAKE`] and wake | published after all? then [`withdraw`] |
//! | | sleep while bell is still as announced |
//!
//! In every order of the four middle steps, either the waiter sees the publication or the publisher
//! sees the bell. The publisher changes the bell *before* it wakes the waiter, so a waiter that is
//! not asleep yet does not fall asleep (a futex wait compares first). The models are
//! `tests/loom_park.rs` and `tests/loom_ring.rs`. Not here: the sleeping itself; see
//! [`crate::futex`].
//!
//! A hostile peer can store any value in the bell. The only effects are that its own messages are
//! noticed late, or that the waiter wakes and finds nothing.

use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// The waiter does not sleep: publishing is enough.
pub const AWAKE: u32 = 0;
/// The waiter sleeps on the bell itself, in a futex wait.
pub const ON_FUTEX: u32 = 1;
/// The waiter sleeps in a poll on the control socket.
pub const ON_SOCKET: u32 = 2;

/// Announces how the waiter is going to sleep. The waiter must check its condition once more
/// *after* this call and before it sleeps.
#[inline]
pub fn announce(bell: &AtomicU32, how: u32) {
    bell.store(how, Ordering::Relaxed);
    // SYNC: full fence; pairs with the one in `ring`.
    fence(Ordering::SeqCst);
}

/// Withdraws the announcement, when the waiter is awake again or need not sleep.
#[inline]
pub fn withdraw(bell: &AtomicU32) {
    bell.store(AWAKE, Ordering::Relaxed);
}

/// Returns how the publisher, having published, must wake the waiter; [`AWAKE`] if no wake-up is
/// needed. The bell is [`AWAKE`] afterwards, so that one sleep costs one wake-up.
#[inline(always)]
pub fn ring(bell: &AtomicU32) -> u32 {
    // SYNC: full fence; pairs with the one in `announce`.
    fence(Ordering::SeqCst);
    if bell.load(Ordering::Relaxed) == AWAKE {
        return AWAKE;
    }
    take(bell)
}

#[cold]
fn take(bell: &AtomicU32) -> u32 {
    bell.swap(AWAKE, Ordering::Relaxed)
}

/// A waiter on whose behalf another thread sleeps: a thread that reads the sockets of many waiters.
///
/// A waiter that sleeps on the socket is *cold*. The thread that reads the socket learns from
/// [`Cold::rang`] if a packet is the wake-up of a cold waiter; if so, the thread must notify the
/// waiter by other means, and the waiter must call [`Cold::end`] and check its condition.
#[derive(Debug)]
pub struct Cold {
    is_cold: AtomicBool,
}

impl Cold {
    /// Creates the state of a waiter that is awake.
    pub fn new() -> Self {
        Self { is_cold: AtomicBool::new(false) }
    }

    /// Announces that the waiter sleeps on the socket. As after [`announce`], the waiter must check
    /// its condition once more.
    #[inline]
    pub fn begin(&self, bell: &AtomicU32) {
        // `is_cold` is set before the bell, because the packet of a publisher that sees the bell
        // must find the waiter cold.
        // SYNC: release; pairs with the acquire swap in `rang`.
        self.is_cold.store(true, Ordering::Release);
        announce(bell, ON_SOCKET);
    }

    /// Notes that the waiter is awake.
    #[inline]
    pub fn end(&self, bell: &AtomicU32) {
        self.is_cold.store(false, Ordering::Release);
        withdraw(bell);
    }

    /// Called when a packet came. Returns true, once for each sleep, if the waiter must be
    /// notified.
    #[inline]
    pub fn rang(&self) -> bool {
        self.is_cold.swap(false, Ordering::AcqRel)
    }
}

impl Default for Cold {
    fn default() -> Self {
        Self::new()
    }
}
