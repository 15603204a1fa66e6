//! What a new thread begins with, handed over by a thread that need not wait for it.
//!
//! There are a few places for that. A place is in use until the thread has copied what is there,
//! and its maker has asked the C library for the thread's number, for which the thread must not
//! have ended. Not here: what a thread begins with (`threads`).

use crate::raw;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

/// The number of threads that can be on their way at the same time.
const PLACES: usize = 16;
/// How often a thread yields to others while all places are in use, and how often it sleeps then:
/// on a busy machine new threads may have to wait for a processor.
const YIELDS: u32 = 1000;
const SLEEPS: u32 = 50_000;
/// The length of a sleep (ns); all take ten seconds.
const SLEEP_NS: i64 = 200_000;

/// The lowest bits of a place's state: who still uses it. The others count how often it was taken.
const MAKER: u32 = 1;
const THREAD: u32 = 2;
/// The thread has ended, and sleeps until its maker is done.
const SLEEPER: u32 = 4;
const USERS: u32 = 7;
const TAKEN: u32 = 8;

/// A place for a value.
pub(crate) struct HandedSlot<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by the place's taker, and copied by the thread that it then makes.
unsafe impl<T: Copy + Send> Sync for HandedSlot<T> {}

/// All places for values of a type.
pub(crate) struct HandedSlots<T>([HandedSlot<T>; PLACES]);

/// A place in a state in which it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The state with both users.
    state: u32,
    place: usize,
}

impl Taken {
    /// Returns the value as the argument of a thread's start function.
    pub(crate) fn into_pointer(self) -> *mut c_void {
        ((self.state as usize) << 32 | self.place) as *mut c_void
    }

    pub(crate) fn from_pointer(pointer: *mut c_void) -> Self {
        let bits = pointer as usize;
        Self { state: (bits >> 32) as u32, place: bits & 0xffff }
    }
}

impl<T: Copy> HandedSlots<T> {
    pub(crate) const fn new() -> Self {
        Self(
            [const {
                HandedSlot {
                    state: AtomicU32::new(0),
                    value: UnsafeCell::new(MaybeUninit::uninit()),
                }
            }; PLACES],
        )
    }

    /// Puts a value into a place; `None` if all places stay in use.
    pub(crate) fn put(&self, value: T) -> Option<Taken> {
        for round in 0..YIELDS + SLEEPS {
            for (place, HandedSlot { state, value: to }) in self.0.iter().enumerate() {
                let before = state.load(Ordering::Relaxed);
                let taken = (before & !USERS).wrapping_add(TAKEN) | MAKER | THREAD;
                // SYNC: acquire; pairs with the releases of those who have used the place before.
                let change = |from, to| {
                    state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
                };
                if before & USERS == 0 && change(before, taken).is_ok() {
                    // SAFETY: nobody else uses the place. pthread_create(3) publishes the value.
                    unsafe { (*to.get()).write(value) };
                    return Some(Taken { state: taken, place });
                }
            }
            let span = libc::timespec { tv_sec: 0, tv_nsec: SLEEP_NS };
            // SAFETY: lets other threads run.
            unsafe {
                match round < YIELDS {
                    true => raw::call(libc::SYS_sched_yield, [0; 6]),
                    false => {
                        raw::call(libc::SYS_nanosleep, [(&raw const span) as usize, 0, 0, 0, 0, 0])
                    }
                };
            }
        }
        None
    }

    /// Copies the value, in the thread that it is for, once.
    pub(crate) fn take(&self, taken: Taken) -> T {
        let place = &self.0[taken.place];
        // SAFETY: the value was written before this thread was made, and stays while it is a user.
        let value = unsafe { (*place.value.get()).assume_init() };
        place.leave(THREAD);
        value
    }

    /// Notes that the maker needs the thread no more, or that there is none.
    pub(crate) fn made(&self, taken: Taken, is_there: bool) {
        let place = &self.0[taken.place];
        if !is_there {
            place.leave(THREAD);
        }
        if place.leave(MAKER) & SLEEPER != 0 {
            raw::wake(place.state.as_ptr(), 1);
            place.leave(SLEEPER);
        }
    }

    /// Returns once the maker needs the thread no more, which is about to end.
    pub(crate) fn end(&self, taken: Taken) {
        let state = &self.0[taken.place].state;
        let (alone, sleeping) = (taken.state & !THREAD, taken.state & !THREAD | SLEEPER);
        if state.compare_exchange(alone, sleeping, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        while state.load(Ordering::Relaxed) == sleeping {
            let at = state.as_ptr() as usize;
            let arguments = [at, libc::FUTEX_WAIT as usize, sleeping as usize, 0, 0, 0];
            // SAFETY: waits only while the state is this one.
            unsafe { raw::call(libc::SYS_futex, arguments) };
        }
    }

    /// Empties all places, in the child of a `fork`, whose only thread this is.
    pub(crate) fn clear(&self) {
        for HandedSlot { state, .. } in &self.0 {
            let taken = state.load(Ordering::Relaxed);
            state.store(taken & !USERS, Ordering::Relaxed);
        }
    }
}

impl<T> HandedSlot<T> {
    /// Ends a use. Returns the state before.
    fn leave(&self, user: u32) -> u32 {
        // SYNC: release; pairs with the acquire in `put`.
        self.state.fetch_and(!user, Ordering::Release)
    }
}
