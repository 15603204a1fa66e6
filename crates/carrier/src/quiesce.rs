//! How long a move waits, for a session of either protocol: for its program, and until no packet of
//! it is on its way in the kernel any more.

use crate::clock::later;
use sojourn_pump::now;

/// Ring bytes wanted for each direction: as many as the program wants.
pub(crate) const RING_BYTES: u32 = u32::MAX;
/// How often a session that may not be taken out yet is looked at (microseconds), and for how long
/// at most.
pub(crate) const TAKE_EVERY_US: u64 = 200;
pub(crate) const TAKE_LIMIT_US: u64 = 2_000_000;

/// After the filter has been told, a packet that has passed it may still be on its way through the
/// kernel on another processor: so long it takes at most (microseconds).
const GRACE_US: u64 = 50;

/// Lets packets that have passed the filter already come to rest. The kernel takes a packet from
/// there to its socket without giving the processor to a thread; so once this thread has run on
/// every processor, none is on its way any more.
pub(crate) fn grace() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let until = later(now(), GRACE_US);
    if let Ok(usual) = sched_getaffinity(None) {
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| usual.is_set(*cpu)) {
            let mut one = CpuSet::new();
            one.set(cpu);
            let _ = sched_setaffinity(None, &one);
        }
        let _ = sched_setaffinity(None, &usual);
    }
    // Processors that this thread may not run on.
    while now() < until {
        core::hint::spin_loop();
    }
}
