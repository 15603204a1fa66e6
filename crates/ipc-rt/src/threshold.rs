//! The size from which passing by reference pays: the value of `reference_above(auto)`.
//!
//! An array in the body is copied by the receiver with the body, and again to its target; as a
//! string item it is copied to its target at once, but the sender has to describe it and the
//! receiver to look it up. The crossover is the size whose copy costs as much as that bookkeeping;
//! both are measured on this machine, with the code that ships, when a stub first asks. Not here:
//! the stubs that ask (`measure`, `idl.h`).

use crate::gather::{Gather, Parts};
use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering};
use sojourn_shm::deadline::now_ns;

/// The bounds of the result (bytes).
const BOUNDS: core::ops::RangeInclusive<usize> = 1 << 10..=256 << 10;
const ROUNDS: usize = 9;
/// The size of the timed copies: as large as an area, and within every second-level cache.
const SAMPLE: usize = 64 << 10;

/// Bytes from which an array is cheaper as a string item than in the body: measured on this
/// machine, once per process, when first asked for.
#[inline]
#[must_use]
pub fn reference_threshold() -> usize {
    match REFERENCE_THRESHOLD.load(Ordering::Relaxed) {
        0 => measured_threshold(),
        bytes => bytes,
    }
}

#[cold]
fn measured_threshold() -> usize {
    let bytes = measure();
    set_reference_threshold(bytes);
    bytes
}

/// Sets what [`reference_threshold`] answers, for programs that know better; 0: measure again.
pub fn set_reference_threshold(bytes: usize) {
    REFERENCE_THRESHOLD.store(bytes, Ordering::Relaxed);
}

static REFERENCE_THRESHOLD: AtomicUsize = AtomicUsize::new(0);

/// Returns the crossover in bytes, rounded to a multiple of 64. Takes a few dozen microseconds.
fn measure() -> usize {
    let source = vec![1_u8; SAMPLE];
    let mut target = vec![0_u8; SAMPLE];
    let copy_ns = median(|| {
        sojourn_shm::copy::slice(black_box(&source), black_box(&mut target));
    });
    let item: &[u8] = &source;
    const DESCRIPTIONS: u64 = 64;
    let describe_ns = median(|| {
        for _ in 0..DESCRIPTIONS {
            let items = [black_box(item)];
            let gather = Gather::new(None, 0, &items, &[]);
            black_box(
                gather.and_then(|gather| Parts::read(gather.table(), gather.total(), 0, 1, 0)),
            );
        }
    });
    let bytes = describe_ns * SAMPLE as u64 / (DESCRIPTIONS * copy_ns.max(1));
    (bytes as usize).clamp(*BOUNDS.start(), *BOUNDS.end()).next_multiple_of(64)
}

/// Returns the median time of `work` in nanoseconds.
fn median(mut work: impl FnMut()) -> u64 {
    let mut times = [0; ROUNDS];
    for time in &mut times {
        let start = now_ns();
        work();
        *time = now_ns() - start;
    }
    times.sort_unstable();
    times[ROUNDS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossover_lies_within_its_bounds() {
        for _ in 0..20 {
            assert!(BOUNDS.contains(&measure()));
        }
    }
}
