//! The machine's load: the number of processors, and the check for more runnable threads than
//! processors.
//!
//! Not here: the use of the load (`wait`). A *crowd* is a state with more runnable threads than
//! processors.

use crate::deadline::now_ns;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use once_cell::race::{OnceBox, OnceNonZeroUsize};
use rustix::fd::AsFd;

/// The least time between two readings of the load.
const LOAD_INTERVAL_NS: u64 = 10_000_000;
/// The least time between two readings while it is unclear if there is a crowd, or only a third
/// thread that ran for a few microseconds by chance.
const DOUBT_INTERVAL_NS: u64 = 300_000;
/// The largest level of belief in a crowd: the number of readings without a crowd until it is over.
const CROWDED_MAX: u32 = 16;
/// The rise of the level by a reading with a crowd: if every fourth reading finds a crowd, there is
/// one.
const CROWDED_LOOK: u32 = 4;
/// The current level of belief in a crowd.
static CROWDED: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the machine's processors, not of those in this thread's affinity mask,
/// because the peer may run on others.
pub(super) fn processors() -> usize {
    // The number is cached because the C library reads a file for it.
    static COUNT: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let count = COUNT.get_or_init(|| {
        // SAFETY: asks for a number.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(online).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
    });
    count.get()
}

/// Returns the last result of [`is_oversubscribed`] without reading the clock.
#[inline(always)]
pub(super) fn is_known_crowd() -> bool {
    is_crowd(CROWDED.load(Ordering::Relaxed))
}

fn is_crowd(level: u32) -> bool {
    level > CROWDED_LOOK / 2
}

/// Returns true if more threads want to run than there are processors, by `/proc/loadavg`
/// (proc_loadavg(5)), which is read mostly once in ten milliseconds per process. Returns false
/// without `/proc`.
pub(super) fn is_oversubscribed() -> bool {
    static NEXT_NS: AtomicU64 = AtomicU64::new(0);
    let now = now_ns();
    let next = NEXT_NS.load(Ordering::Relaxed);
    let usual = now + LOAD_INTERVAL_NS;
    if now >= next
        && NEXT_NS.compare_exchange(next, usual, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        let crowded = runnable().is_some_and(|running| running > processors());
        let level = belief(CROWDED.load(Ordering::Relaxed), crowded);
        CROWDED.store(level, Ordering::Relaxed);
        if (1..=CROWDED_LOOK).contains(&level) {
            NEXT_NS.store(now + DOUBT_INTERVAL_NS, Ordering::Relaxed);
        }
    }
    is_known_crowd()
}

/// Returns the level of belief after a reading. Readings without a crowd are likely even in a
/// crowd, because threads that do not spin run for short times only.
fn belief(before: u32, crowded: bool) -> u32 {
    if crowded { (before + CROWDED_LOOK).min(CROWDED_MAX) } else { before.saturating_sub(1) }
}

/// The number of an open `/proc/loadavg`, if another crate opens it.
static LOAD: AtomicI32 = AtomicI32::new(OWN_FILE);
/// This crate opens it.
const OWN_FILE: i32 = -1;
/// The load is not read.
const NO_FILE: i32 = -2;

/// Sets the descriptor from which the load is read, or `None` to disable reading. A library in a
/// program must not open files among the program's descriptors. Reading does not move the file's
/// position (pread(2)).
pub fn read_load_from(number: Option<i32>) {
    LOAD.store(number.unwrap_or(NO_FILE), Ordering::Relaxed);
}

/// Reads now the values that are read from files once per process, so that no thread opens these
/// files later.
pub fn learn_machine() {
    processors();
}

/// Returns the number of runnable threads, including this one.
fn runnable() -> Option<usize> {
    static FILE: OnceBox<Option<std::fs::File>> = OnceBox::new();
    let file = match LOAD.load(Ordering::Relaxed) {
        OWN_FILE => {
            let open = || Box::new(std::fs::File::open("/proc/loadavg").ok());
            FILE.get_or_init(open).as_ref()?.as_fd()
        }
        number => crate::descriptor::of_program(number)?,
    };
    let mut text = [0; 64];
    let len = rustix::io::pread(file, &mut text, 0).ok()?;
    let text = core::str::from_utf8(&text[..len]).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_seen_at_once_and_believed_in_while_every_fourth_look_finds_it() {
        assert!(is_crowd(belief(0, true)), "spinning in a crowd costs more than sleeping alone");
        let mut level = 0;
        for look in 0..1000 {
            level = belief(level, look % 4 == 0);
        }
        assert!(
            (0..4).all(|quiet| is_crowd((0..quiet).fold(level, |level, _| belief(level, false))))
        );
        level = (0..CROWDED_MAX).fold(level, |level, _| belief(level, false));
        assert_eq!(level, 0, "and it ends");
    }

    #[test]
    fn this_thread_counts_as_runnable() {
        assert!(runnable().is_none_or(|n| n >= 1));
    }
}
