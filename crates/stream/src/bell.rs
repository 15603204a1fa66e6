//! Bells: how a side says that it sleeps, and how the other side wakes it.
//!
//! As `sojourn_shm::park` (read that first), for a side of which several threads may sleep at once,
//! each in its own way. A bell is flags and a count of rings:
//!
//! * a sleeper sets its flag ([`Sleepers::announce`]), looks again, and sleeps while the *whole*
//!   word is as it was;
//! * a ringer that finds a flag first counts, then takes all flags, then wakes all whose flag it
//!   took.
//!
//! The count is what a thread that has announced but not yet fallen asleep notices when another
//! thread sets the same flag again after the ring. Not here: the sleeping. Model:
//! `tests/loom_bell.rs`.

use crate::sync::{Mutex, fence_after_update, lock};
use sojourn_shm::{AtomicU32, AtomicU64, Ordering};

/// How somebody sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// Not at all.
    Awake,
    /// On the bell itself, in a futex wait.
    OnFutex,
    /// In a wait for many, of which the inbox is a part. Stays announced until it is rung.
    OnInbox,
}

/// The flag of [`Bell::OnFutex`].
pub const FUTEX: u32 = 1;
/// The flag of [`Bell::OnInbox`].
pub const INBOX: u32 = 2;
const FLAGS: u32 = FUTEX | INBOX;
const COUNT_ONE: u32 = 4;

/// A bell in shared memory.
#[repr(transparent)]
#[derive(Debug)]
pub struct BellWord(AtomicU32);

impl BellWord {
    /// A bell nobody sleeps on.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The word, to sleep on.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// As [`BellWord::has_sleepers`], after anything else than a read-modify-write.
    pub fn has_sleepers_after_store(&self) -> bool {
        sojourn_shm::fence(Ordering::SeqCst);
        self.has_sleepers()
    }

    /// The ringer has published with a read-modify-write: whether anybody sleeps. Nearly free.
    #[inline(always)]
    pub fn has_sleepers(&self) -> bool {
        // SYNC: full fence; pairs with the one in `announce`.
        fence_after_update();
        self.0.load(Ordering::Acquire) & FLAGS != 0
    }

    /// Takes the flags ([`FUTEX`], [`INBOX`]) of all who sleep; the caller wakes them.
    #[cold]
    pub fn take(&self) -> u32 {
        self.0.fetch_add(COUNT_ONE, Ordering::AcqRel);
        self.0.fetch_and(!FLAGS, Ordering::AcqRel) & FLAGS
    }
}

impl Default for BellWord {
    fn default() -> Self {
        Self::new()
    }
}

/// One side's own sleepers on one bell: private to the process.
#[derive(Debug, Default)]
pub struct Sleepers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    on_futex: u32,
    /// Announced since [`Sleepers::take`]; the bell may have been rung meanwhile.
    on_inbox: bool,
    want: u64,
}

impl Sleepers {
    /// A thread is about to sleep. It must look once more *after* this call, and sleep while the
    /// bell has the value answered.
    pub fn announce(&self, bell: &BellWord, how: Bell) -> u32 {
        let mut state = lock(&self.state);
        announce_locked(&mut state, bell, how)
    }

    /// As [`Sleepers::announce`], for a writer that wants to be rung from position `want` of the
    /// head on. Of several wishes the smallest counts.
    pub fn announce_want(&self, bell: &BellWord, how: Bell, word: &AtomicU64, want: u64) -> u32 {
        let mut state = lock(&self.state);
        // Flags are set under this lock only; a ringer can only take them away meanwhile.
        let others = bell.0.load(Ordering::Relaxed) & FLAGS != 0;
        state.want = if others { state.want.min(want) } else { want };
        word.store(state.want, Ordering::Relaxed);
        announce_locked(&mut state, bell, how)
    }

    /// For the sleepers' own process: as [`BellWord::take`], but answers also the flags that the
    /// other side has taken. It can have died before it woke anybody.
    pub fn take(&self, bell: &BellWord) -> u32 {
        // What we are woken for is published before; sleepers that announce after this lock is let
        // go look again.
        let mut state = lock(&self.state);
        let futex = if state.on_futex > 0 { FUTEX } else { 0 };
        let inbox = if core::mem::take(&mut state.on_inbox) { INBOX } else { 0 };
        if futex | inbox == 0 {
            return 0;
        }
        bell.take();
        futex | inbox
    }

    /// A thread that had announced [`Bell::OnFutex`] is awake. An inbox stays announced.
    pub fn withdraw(&self, bell: &BellWord) {
        let mut state = lock(&self.state);
        state.on_futex = state.on_futex.saturating_sub(1);
        if state.on_futex == 0 && bell.0.load(Ordering::Relaxed) & FUTEX != 0 {
            bell.0.fetch_and(!FUTEX, Ordering::Relaxed);
        }
    }
}

fn announce_locked(state: &mut State, bell: &BellWord, how: Bell) -> u32 {
    let flag = match how {
        Bell::Awake => 0,
        Bell::OnFutex => FUTEX,
        Bell::OnInbox => INBOX,
    };
    state.on_futex += u32::from(how == Bell::OnFutex);
    state.on_inbox |= how == Bell::OnInbox;
    // SYNC: release, for `want`; pairs with the acquire in `has_sleepers`.
    let before = bell.0.fetch_or(flag, Ordering::AcqRel);
    // SYNC: full fence; pairs with the one in `has_sleepers`.
    fence_after_update();
    before | flag
}
