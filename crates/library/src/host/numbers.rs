//! Descriptor numbers while a thread of the library's own takes one in the program's table.
//!
//! Every call that makes a descriptor takes the lowest number that is free, and there is none that
//! does not. So one of ours has a number for a moment that the program could get or name. In a
//! process with one thread, that thread itself makes such calls, inside one of its own, and nobody
//! can look. In others the calls of the program that make or name numbers wait for that moment, as
//! it waits for them. What only the protocol thread needs is made in a table of its own instead
//! (`protocol::outside`). Not here: which numbers are ours (`engine`).

use core::sync::atomic::Ordering;
use core::time::Duration;
use sojourn_shm::{AtomicU32, Deadline, futex};

/// A number of ours is where the program could meet it.
const HELD: u32 = 1 << 31;
/// How long one sleeps before another look. The wake-up comes as a rule.
const SLICE: Duration = Duration::from_millis(1);

/// How long the program's calls are waited for where that is not so important.
const BRIEFLY: Duration = Duration::from_millis(2);
/// So long nobody keeps calls away.
const LOST: Duration = Duration::from_millis(500);
/// How often one who waits for the program's calls looks at once, and how long it then sleeps
/// between looks: they are short, as a rule.
const EAGER: u32 = 16;
const PAUSE: Duration = Duration::from_micros(50);

/// Calls of the program that are being made, and [`HELD`].
static STATE: AtomicU32 = AtomicU32::new(0);

/// A call of the program that makes or names descriptor numbers, and does not wait for anything,
/// begins. A thread that is cancelled in it never says that it has ended: then nothing moves in
/// this process any more anyhow.
#[inline]
pub fn begin() {
    // SYNC: before the call; pairs with the exchange in `hold`: one of the two sees the other.
    if STATE.fetch_add(1, Ordering::SeqCst) & HELD != 0 {
        wait();
    }
}

#[cold]
fn wait() {
    end();
    while pass() && STATE.fetch_add(1, Ordering::SeqCst) & HELD != 0 {
        end();
    }
}

/// A call that may wait in the kernel, and takes its number before it does, begins: it is not
/// counted. False: who keeps it away has not done with it for so long that it is not there, as in
/// the child of a `fork` that nobody has told of.
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

/// What [`begin`] told of is over.
#[inline]
pub fn end() {
    let mut state = STATE.load(Ordering::Relaxed);
    // In a `fork` child that a handler made in the middle of such a call there is nothing to count
    // down.
    while state & !HELD != 0 {
        match STATE.compare_exchange_weak(state, state - 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => state = now,
        }
    }
}

/// In a `fork` child: its one thread is in no such call.
pub fn forget() {
    STATE.store(0, Ordering::SeqCst);
}

/// The program makes no such call as long as this is there.
#[derive(Debug)]
pub(crate) struct Hold(());

/// Keeps the program's calls away, if none is under way within `limit`.
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

/// Does what opens something for a moment, in a thread that is inside one of the program's calls.
pub(crate) fn briefly<R>(work: impl FnOnce() -> R) -> R {
    let _hold = hold(BRIEFLY);
    work()
}

impl Drop for Hold {
    fn drop(&mut self) {
        STATE.fetch_and(!HELD, Ordering::SeqCst);
        futex::wake_all(&STATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32 as Count;

    /// One test: there is one state for a process.
    #[test]
    fn calls_and_those_who_keep_them_away_never_meet() {
        static INSIDE: Count = Count::new(0);
        let others = (0..3).map(|_| {
            std::thread::spawn(|| {
                for _ in 0..20_000 {
                    begin();
                    INSIDE.fetch_add(1, Ordering::SeqCst);
                    INSIDE.fetch_sub(1, Ordering::SeqCst);
                    end();
                }
            })
        });
        let others: Vec<_> = others.collect();
        let mut held = 0;
        while !others.iter().all(|other| other.is_finished()) {
            if let Some(_hold) = hold(Duration::from_millis(1)) {
                held += 1;
                assert_eq!(INSIDE.load(Ordering::SeqCst), 0);
            }
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(held > 0);
        begin();
        assert!(hold(Duration::from_millis(1)).is_none());
        end();
        end();
        assert!(hold(Duration::ZERO).is_some(), "one end too many does no harm");
    }
}
