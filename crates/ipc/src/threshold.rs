//! Where passing by reference begins to pay: what `reference_above(auto)` means.
//!
//! An array in the body is copied by the receiver with the body and again to where it belongs; as a
//! string item it is copied there at once, but has to be described by the sender and found by the
//! receiver. The crossover is the size whose copy costs as much as that bookkeeping; both are
//! measured here, on this machine, with the code that ships. Not here: the stubs that ask (`rt`,
//! `idl.h`).

use crate::deadline::now_ns;
use crate::gather::{Gather, Parts};
use core::hint::black_box;

/// Whatever is measured, the answer lies within (bytes).
const BOUNDS: core::ops::RangeInclusive<usize> = 1 << 10..=256 << 10;
const ROUNDS: usize = 9;
/// Copies of this size are timed: as large as an area, and within every second-level cache.
const SAMPLE: usize = 64 << 10;

/// The crossover in bytes, rounded to a multiple of 64. Takes a few dozen microseconds.
pub(crate) fn measure() -> usize {
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

/// Median time of `work`, in nanoseconds.
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
