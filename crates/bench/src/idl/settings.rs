//! The settings of `sojourn-bench idl`: durations, repetitions and sizes.

use serde::Serialize;

/// Durations, repetitions and sizes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    /// Rounds: visits to each cell.
    pub(crate) rounds: usize,
    /// Nanoseconds that a visit should take.
    pub(crate) batch_ns: f64,
    /// Sizes of the argument of whole calls, in bytes.
    pub(crate) sizes: Vec<usize>,
    /// True for a smoke test, whose figures mean nothing.
    pub(crate) quick: bool,
}

pub(super) fn settings(quick: bool) -> Settings {
    if quick {
        return Settings { rounds: 2, batch_ns: 100_000.0, sizes: vec![64, 4096, 65_536], quick };
    }
    // From 16 B to 1 MiB, with a size half-way within each doubling around the crossover.
    let sizes = (4..=20).flat_map(|bits: u32| {
        let whole = 1_usize << bits;
        let half = (10..17).contains(&bits).then_some(whole + whole / 2);
        std::iter::once(whole).chain(half)
    });
    Settings { rounds: 31, batch_ns: 3_000_000.0, sizes: sizes.collect(), quick }
}
