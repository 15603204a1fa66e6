//! The machine's load: how many processors there are, and whether more threads want to run.
//!
//! Not here: what a waiter makes of it; see `wait`.

use crate::deadline::now_ns;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use rustix::fd::AsFd;
use std::sync::OnceLock;

/// How often the machine's load is looked at, at most.
const LOAD_INTERVAL_NS: u64 = 10_000_000;
/// The same while it is not clear whether there is a crowd, or a third thread ran for a few
/// microseconds by chance.
const DOUBT_INTERVAL_NS: u64 = 300_000;
/// How firmly a crowd is believed in: so many quiet looks, at most, until it is over.
const CROWDED_MAX: u32 = 16;
/// How many of those one crowded look is worth: where every fourth finds a crowd, there is one.
const CROWDED_LOOK: u32 = 4;
/// How firmly it is believed in now.
static CROWDED: AtomicU32 = AtomicU32::new(0);

/// Processors of the machine, not those we may run on: the peer may run on others.
pub(super) fn processors() -> usize {
    // The C library reads a file for it.
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: asks for a number.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(online).unwrap_or(1).max(1)
    })
}

/// What [`is_oversubscribed`] said last, without a look at the clock.
#[inline(always)]
pub(super) fn is_known_crowd() -> bool {
    is_crowd(CROWDED.load(Ordering::Relaxed))
}

fn is_crowd(level: u32) -> bool {
    level > CROWDED_LOOK / 2
}

/// Whether more threads want to run than there are processors: from `/proc/loadavg`, mostly once in
/// ten milliseconds per process. Without `/proc` the answer is no.
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

/// How firmly a crowd is believed in after a look. A quiet moment in a crowd is likely: all the
/// more as one that does not spin runs for short times only.
fn belief(before: u32, crowded: bool) -> u32 {
    if crowded { (before + CROWDED_LOOK).min(CROWDED_MAX) } else { before.saturating_sub(1) }
}

/// Where `/proc/loadavg` is open, if it is not this crate that opens it.
static LOAD: AtomicI32 = AtomicI32::new(OWN_FILE);
/// This crate opens it.
const OWN_FILE: i32 = -1;
/// Nobody does.
const NO_FILE: i32 = -2;

/// Has the load read from this number, or not at all: who lives in a program whose descriptors are
/// not its own opens nothing where the program could see it. What is read does not move the file
/// on.
pub fn read_load_from(number: Option<i32>) {
    LOAD.store(number.unwrap_or(NO_FILE), Ordering::Relaxed);
}

/// Learns now what is read from a file once in a process, so that no thread opens that file later.
pub fn learn_machine() {
    processors();
}

/// Threads running or wanting to, this one included.
fn runnable() -> Option<usize> {
    static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();
    let file = match LOAD.load(Ordering::Relaxed) {
        OWN_FILE => {
            FILE.get_or_init(|| std::fs::File::open("/proc/loadavg").ok()).as_ref()?.as_fd()
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
