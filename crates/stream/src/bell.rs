//! Bells: how a side announces that it sleeps, and how the other side wakes it.
//!
//! A bell follows `sojourn_shm::park` (read that first), for a side of which several threads may
//! sleep at once, each in its own way. It is flags and a count of rings:
//!
//! * a sleeper sets its flag ([`Sleepers::announce`]), looks again, and sleeps while the *whole*
//!   word is unchanged;
//! * a ringer that finds a flag first counts, then takes all flags, then wakes all sleepers whose
//!   flag it took.
//!
//! A thread that has announced and does not sleep yet notices a ring by the count, if another
//! thread sets the same flag again after the ring.
//!
//! [`Bell::OnAttention`] is not a sleeper's: its flag stays until the own side takes it back, and
//! each ring asks for attention. Not here: the sleeping. Model: `tests/loom_bell.rs`.

use crate::sync::{Mutex, fence_after_update, lock};
use sojourn_shm::{AtomicU32, AtomicU64, Ordering};

/// The way in which a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// It does not sleep.
    Awake,
    /// It sleeps on the bell itself, in a futex wait.
    OnFutex,
    /// It sleeps in a wait for many, of which the inbox is a part. The flag stays set until the
    /// bell rings.
    OnInbox,
    /// Nobody sleeps: each ring asks for the attention of the side's protocol thread. The flag
    /// stays set until [`Sleepers::end_attention`].
    OnAttention,
}

/// The flag of [`Bell::OnFutex`].
pub const FUTEX: u32 = 1;
/// The flag of [`Bell::OnInbox`].
pub const INBOX: u32 = 2;
/// The flag of [`Bell::OnAttention`].
pub const ATTENTION: u32 = 4;
/// The flags that a ring takes.
const TAKEN: u32 = FUTEX | INBOX;
const FLAGS: u32 = TAKEN | ATTENTION;
const COUNT_ONE: u32 = 8;

/// A bell in shared memory.
#[repr(transparent)]
#[derive(Debug)]
pub struct BellWord(AtomicU32);

impl BellWord {
    /// Makes a bell without sleepers.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns the word, to sleep on.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Returns true if anybody sleeps, after publishing by anything but a read-modify-write.
    pub fn has_sleepers_after_store(&self) -> bool {
        sojourn_shm::fence(Ordering::SeqCst);
        self.has_sleepers()
    }

    /// Returns true if anybody sleeps, after publishing by a read-modify-write. Nearly free.
    #[inline(always)]
    pub fn has_sleepers(&self) -> bool {
        // SYNC: full fence; pairs with the one in `announce`.
        fence_after_update();
        self.0.load(Ordering::Acquire) & FLAGS != 0
    }

    /// Takes the flags ([`FUTEX`], [`INBOX`]) of all sleepers; the caller wakes these. Returns
    /// [`ATTENTION`], too, which stays set.
    #[cold]
    pub fn take(&self) -> u32 {
        self.0.fetch_add(COUNT_ONE, Ordering::AcqRel);
        self.0.fetch_and(!TAKEN, Ordering::AcqRel) & FLAGS
    }
}

impl Default for BellWord {
    fn default() -> Self {
        Self::new()
    }
}

/// One side's own sleepers on one bell, private to the process.
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
    /// Announces that a thread is about to sleep. It looks once more *after* this call, and sleeps
    /// while the bell has the returned value.
    pub fn announce(&self, bell: &BellWord, how: Bell) -> u32 {
        let mut state = lock(&self.state);
        announce_locked(&mut state, bell, how)
    }

    /// Announces a writer that wants to be rung from position `want` of the head on, like
    /// [`Sleepers::announce`]. Of several wishes the smallest counts.
    pub fn announce_want(&self, bell: &BellWord, how: Bell, word: &AtomicU64, want: u64) -> u32 {
        let mut state = lock(&self.state);
        // Flags are set under this lock only; a ringer can only take them away meanwhile.
        let others = bell.0.load(Ordering::Relaxed) & FLAGS != 0;
        state.want = if others { state.want.min(want) } else { want };
        word.store(state.want, Ordering::Relaxed);
        announce_locked(&mut state, bell, how)
    }

    /// Takes the flags for the sleepers' own process, like [`BellWord::take`], and includes flags
    /// that the other side has taken: it may have died before it woke anybody.
    pub fn take(&self, bell: &BellWord) -> u32 {
        // The reason for the wake-up is published before; sleepers that announce after this lock is
        // let go of look again.
        let mut state = lock(&self.state);
        let futex = if state.on_futex > 0 { FUTEX } else { 0 };
        let inbox = if core::mem::take(&mut state.on_inbox) { INBOX } else { 0 };
        if futex | inbox == 0 {
            return 0;
        }
        bell.take();
        futex | inbox
    }

    /// Takes back the announcement of [`Bell::OnAttention`].
    pub fn end_attention(&self, bell: &BellWord) {
        bell.0.fetch_and(!ATTENTION, Ordering::Relaxed);
    }

    /// Takes back an announcement of [`Bell::OnFutex`]. An inbox stays announced.
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
        Bell::OnAttention => ATTENTION,
    };
    state.on_futex += u32::from(how == Bell::OnFutex);
    state.on_inbox |= how == Bell::OnInbox;
    // SYNC: release, for `want`; pairs with the acquire in `has_sleepers`.
    let before = bell.0.fetch_or(flag, Ordering::AcqRel);
    // SYNC: full fence; pairs with the one in `has_sleepers`.
    fence_after_update();
    before | flag
}
