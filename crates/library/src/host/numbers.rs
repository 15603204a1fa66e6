//! Mutual exclusion between the program's calls that make descriptors and the library's.
//!
//! Every call that makes a descriptor takes the lowest free number; there is no way to ask for
//! another. So a descriptor of the library's has, for a moment, a number that the program could get
//! or name. In a process with one thread, that thread makes the library's descriptors inside a call
//! of its own, and nobody can look. In other processes, the program's calls that make or name
//! numbers ([`begin`], [`pass`]) wait until the library is done (`Hold`), and the library waits
//! for the calls under way. The protocol thread keeps what only it needs in a table of its own
//! (`protocol::outside`). Not here: which numbers are the library's (`fds::own`).

use core::sync::atomic::Ordering;
use core::time::Duration;
use sojourn_shm::{AtomicU32, Deadline, futex};

/// Bit of [`STATE`]: a number of the library's is where the program could meet it.
const HELD: u32 = 1 << 31;
/// Sleep before another look, in case a wake-up is lost.
const SLICE: Duration = Duration::from_millis(1);

/// After so long a [`Hold`] counts as lost: nobody keeps calls away for that long.
const LOST: Duration = Duration::from_millis(500);
/// Looks of [`hold`] that only yield, because the program's calls are short as a rule, and the
/// sleep between later looks.
const EAGER: u32 = 16;
const PAUSE: Duration = Duration::from_micros(50);

/// The number of the program's calls under way, and [`HELD`].
static STATE: AtomicU32 = AtomicU32::new(0);

/// Begins a call of the program that makes or names descriptor numbers and does not block. A thread
/// that is cancelled inside that call never calls [`end`]: then `hold` fails from then on, and
/// nothing moves in this process any more.
#[inline]
pub fn begin() {
    // SYNC: before the call; pairs with the exchange in `hold`: one of the two sees the other.
    if STATE.fetch_add(1, Ordering::SeqCst) & HELD != 0 {
        wait();
    }
}

#[cold]
fn wait() {
    // The holder waits for a count of zero, so this call must not count itself while it waits.
    end();
    while pass() && STATE.fetch_add(1, Ordering::SeqCst) & HELD != 0 {
        end();
    }
}

/// Begins a call that may block in the kernel, and takes its number before it does. Such a call is
/// not counted. Returns false if the hold lasted so long that its holder cannot exist: this process
/// is then the child of a `fork` that the library was not told of.
#[inline]
pub fn pass() -> bool {
    STATE.load(Ordering::SeqCst) & HELD == 0 || pass_later()
}

#[cold]
fn pass_later() -> bool {
    let deadline = Deadline::after(LOST);
    loop {
        let state = STATE.load(Ordering::SeqCst);
        if state & HELD == 0 {
            return true;
        }
        if deadline.is_over() {
            forget();
            return false;
        }
        futex::wait(&STATE, state, Some(SLICE));
    }
}

/// Ends the call that [`begin`] began.
#[inline]
pub fn end() {
    let mut state = STATE.load(Ordering::Relaxed);
    // The count can be zero here: a handler made a `fork` child in the middle of such a call, and
    // `forget` has cleared the child's count.
    while state & !HELD != 0 {
        match STATE.compare_exchange_weak(state, state - 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => state = now,
        }
    }
}

/// Clears the state in a `fork` child, whose only thread is in no such call.
pub fn forget() {
    STATE.store(0, Ordering::SeqCst);
}

/// Keeps the program's counted calls away until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold(());

/// Keeps the program's calls away, once none is under way; `None` if one still is after `limit`.
pub(crate) fn hold(limit: Duration) -> Option<Hold> {
    let deadline = Deadline::after(limit);
    let mut looks = 0;
    while STATE.compare_exchange(0, HELD, Ordering::SeqCst, Ordering::Relaxed).is_err() {
        if deadline.is_over() {
            return None;
        }
        looks += 1;
        if looks < EAGER { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
    }
    Some(Hold(()))
}

impl Drop for Hold {
    fn drop(&mut self) {
        STATE.fetch_and(!HELD, Ordering::SeqCst);
        futex::wake_all(&STATE);
    }
}

/// Is locked by tests that begin calls or hold them: there is one state for a process.
#[cfg(test)]
pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::lock::lock;
    use core::sync::atomic::{AtomicBool, AtomicU32 as Count};

    #[test]
    fn calls_and_those_who_keep_them_away_never_meet() {
        let _alone = lock(&ALONE);
        static INSIDE: Count = Count::new(0);
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let others = [(); 3].map(|()| {
            std::thread::spawn(|| {
                while !IS_OVER.load(Ordering::SeqCst) {
                    begin();
                    INSIDE.fetch_add(1, Ordering::SeqCst);
                    INSIDE.fetch_sub(1, Ordering::SeqCst);
                    end();
                }
            })
        });
        let (mut held, until) = (0, Deadline::after(Duration::from_secs(20)));
        while held < 100 && !until.is_over() {
            if let Some(_hold) = hold(Duration::from_millis(1)) {
                held += 1;
                assert_eq!(INSIDE.load(Ordering::SeqCst), 0);
            }
        }
        IS_OVER.store(true, Ordering::SeqCst);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(held > 0);
        begin();
        assert!(hold(Duration::from_millis(1)).is_none());
        end();
        end();
        assert!(hold(Duration::ZERO).is_some(), "one end too many does no harm");
    }
}
