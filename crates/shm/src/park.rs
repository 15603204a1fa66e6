//! Parking: how a waiter sleeps and how whoever publishes something wakes it, losing no wake-up.
//!
//! # Theory of operation
//! The waiter owns a word, the *bell*, in memory both sides can write. It is Dekker's problem:
//!
//! | publisher ([`ring`]) | waiter ([`announce`]) |
//! |---|---|
//! | publish | bell := how it sleeps |
//! | full fence | full fence |
//! | bell asleep? then bell := [`AWAKE`] and wake | published after all? then [`withdraw`] |
//! | | sleep while bell is still as announced |
//!
//! Whatever the order of the four middle steps, either the waiter sees what was published or the
//! publisher sees the bell. The publisher changes the bell *before* it wakes, so a waiter that has
//! not gone to sleep yet does not go any more (a futex wait compares first). The models are
//! `tests/loom_park.rs` and `tests/loom_ring.rs`. Not here: the sleeping itself; see
//! [`crate::futex`].
//!
//! A hostile peer can store anything in the bell. All it gains is that its own messages are noticed
//! late, or that the waiter wakes and finds nothing.

use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// Nobody sleeps: publishing is enough.
pub const AWAKE: u32 = 0;
/// The waiter sleeps on the bell itself, in a futex wait.
pub const ON_FUTEX: u32 = 1;
/// The waiter sleeps in a poll on the control socket.
pub const ON_SOCKET: u32 = 2;

/// The waiter says how it is going to sleep. It must look once more for what it waits for
/// *after* this call and before it sleeps.
#[inline]
pub fn announce(bell: &AtomicU32, how: u32) {
    bell.store(how, Ordering::Relaxed);
    // SYNC: full fence; pairs with the one in `ring`.
    fence(Ordering::SeqCst);
}

/// The waiter is awake again, or has seen that it need not sleep.
#[inline]
pub fn withdraw(bell: &AtomicU32) {
    bell.store(AWAKE, Ordering::Relaxed);
}

/// The publisher, having published, learns how the waiter must be woken: [`AWAKE`] for not at all.
/// The bell is [`AWAKE`] afterwards, so that one sleep costs one wake-up.
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

/// A waiter with a third party that sleeps for it: one that reads the socket for many.
///
/// The waiter that falls asleep on the socket is *cold*. Whoever reads its socket learns from
/// [`Cold::rang`] whether a packet is the wake-up it asked for; then it must tell the waiter, by
/// other means, which must call [`Cold::end`] and look.
#[derive(Debug)]
pub struct Cold {
    is_cold: AtomicBool,
}

impl Cold {
    /// A waiter that is awake.
    pub fn new() -> Self {
        Self { is_cold: AtomicBool::new(false) }
    }

    /// The waiter falls asleep on the socket. As after [`announce`], it must look once more.
    #[inline]
    pub fn begin(&self, bell: &AtomicU32) {
        // Before the bell: who rings it sends a packet, and that must find us asleep.
        // SYNC: release; pairs with the acquire swap in `rang`.
        self.is_cold.store(true, Ordering::Release);
        announce(bell, ON_SOCKET);
    }

    /// The waiter is awake.
    #[inline]
    pub fn end(&self, bell: &AtomicU32) {
        self.is_cold.store(false, Ordering::Release);
        withdraw(bell);
    }

    /// A packet came: whether the waiter must be told. Once for each sleep.
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
