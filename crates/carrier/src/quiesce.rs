//! The waits of a move out, for a session of either protocol: for its program, and until none of
//! its packets is on its way in the kernel.
//!
//! Not here: the steps that wait (`moves::out`, `datagrams`).

use crate::clock::later;
use sojourn_pump::now;

/// Ring bytes wanted for each direction: as many as the program wants.
pub(crate) const RING_BYTES: u32 = u32::MAX;
/// Pause between two looks at a session that may not be taken out yet, and how long that may last
/// (microseconds).
pub(crate) const TAKE_EVERY_US: u64 = 200;
pub(crate) const TAKE_LIMIT_US: u64 = 2_000_000;

/// The longest time that a packet which has passed the filter takes to its socket on another
/// processor (microseconds).
const GRACE_US: u64 = 50;

/// Waits until packets that have passed the filter already have reached their sockets. The kernel
/// takes a packet from there to its socket in a softirq, without giving the processor to a thread.
/// So once this thread has run on every processor no such packet is left.
pub(crate) fn wait_for_softirqs() {
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
    // This covers processors on which this thread may not run.
    while now() < until {
        core::hint::spin_loop();
    }
}
