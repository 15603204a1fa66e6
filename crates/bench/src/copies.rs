//! `sojourn-bench copies`: copy routines, compared by size, by the position of source and target
//! within a page, and by the state of the caches.
//!
//! One thread copies within private memory. The table has the loop of the data path
//! (`sojourn_shm::copy`) beside the C library's `memcpy`, the processor's string instruction and
//! plain vector loops (`routines.rs`). Not here: copies between processes (`ipc`, `local`).

mod routines;

use anyhow::Result;
use serde::Serialize;

use self::routines::Routine;
use crate::machine::Machine;
use crate::os::now_ns;
use crate::stats::{percentile, sorted};
use crate::table::{Table, bytes, ratio};
use crate::targets::TargetResult;

/// State of the caches before a copy, and the use of the copy after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CacheState {
    /// Source and target are the same two buffers for every copy.
    InCache,
    /// Each copy has other buffers, out of more memory than the caches hold.
    NotInCache,
    /// As `NotInCache`, and each copy is read once, as its receiver would read it.
    NotInCacheThenRead,
}

impl CacheState {
    const ALL: [Self; 3] = [Self::InCache, Self::NotInCache, Self::NotInCacheThenRead];

    fn title(self) -> &'static str {
        match self {
            Self::InCache => "in cache",
            Self::NotInCache => "not in cache",
            Self::NotInCacheThenRead => "not in cache, then read",
        }
    }

    /// Returns the quantile of the rounds that a cell reports, counted from the fastest. In caches
    /// the fastest round is the true cost, as nothing can make a copy faster than it is. Beyond the
    /// caches a single round may be fast by accident, so the lower quartile stands for them.
    fn quantile(self) -> f64 {
        if self == Self::InCache { 0.0 } else { 0.25 }
    }

    /// Returns true if the project's own routine is compared with `way`. A routine that stores past
    /// the caches is compared only where the copy is read afterwards, because only there its cost
    /// shows.
    fn compares(self, way: &Routine) -> bool {
        !way.is_ours && (self == Self::NotInCacheThenRead || !way.bypasses_caches)
    }
}

/// One line of the JSON file: one routine at one size, position and cache state.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    place: CacheState,
    size: usize,
    /// Bytes between the beginning of a page and the first byte of the source.
    source: usize,
    /// The same of the target.
    target: usize,
    way: &'static str,
    /// Rate in the round that [`CacheState::quantile`] chooses.
    gb_per_s: f64,
}

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    cells: Vec<Cell>,
    #[serde(rename = "reach")]
    targets: Vec<TargetResult>,
}

/// Restricts a run to parts of the table; the default measures everything.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// Measures only copies of this many bytes; may be given several times.
    #[arg(long)]
    size: Vec<usize>,
    /// Measures only with the caches in this state; may be given several times.
    #[arg(long)]
    place: Vec<CacheState>,
}

const SIZES: [usize; 15] = [
    16,
    40,
    64,
    100,
    256,
    512,
    1000,
    2048,
    4 << 10,
    9000,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];

/// Positions of source and target within a page.
const ALIGNMENTS: [(usize, usize); 14] = [
    (0, 0),
    (16, 16),
    (0, 16),
    (16, 0),
    (0, 8),
    (8, 0),
    (0, 1),
    (1, 0),
    (3, 9),
    (0, 64),
    (64, 0),
    (0, 256),
    (0, 2048),
    (4080, 16),
];

/// Bytes of source and of target where copies are to miss the caches.
const FAR: usize = 96 << 20;
/// Bytes of source and of target where copies are to hit the caches.
const NEAR: usize = (4 << 20) + (64 << 10);
const PAGE: usize = 4096;

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool, choice: &Choice) -> Result<Outcome> {
    let machine = Machine::here();
    println!(
        "Copies on {}, gigabytes a second; source and target: bytes behind a page.\n",
        machine.processor
    );
    let ways = routines::all();
    let (rounds, batch_ns) = if quick { (1, 1_000) } else { (25, 30_000) };
    let mut arena = Arena::new(if quick { NEAR } else { FAR });
    let is_wanted = |size: &usize| choice.size.is_empty() || choice.size.contains(size);
    let mut cells = Vec::new();
    let has_place = |place: &CacheState| choice.place.is_empty() || choice.place.contains(place);
    for place in CacheState::ALL.into_iter().filter(has_place) {
        let mut table = Table::new(
            ["size", "source", "target"]
                .into_iter()
                .chain(ways.iter().map(|way| way.name))
                .chain(["of best"]),
        );
        for size in SIZES.into_iter().filter(is_wanted) {
            for (source, target) in ALIGNMENTS {
                let spot = Spot { place, size, source, target };
                let found = spot.measure(&ways, &mut arena, rounds, batch_ns);
                table.row(spot.line(&ways, &found));
                cells.extend(ways.iter().zip(&found).map(|(way, &gb_per_s)| Cell {
                    place,
                    size,
                    source,
                    target,
                    way: way.name,
                    gb_per_s,
                }));
            }
        }
        println!("{}\n{}", place.title(), table.render());
    }
    let targets = judge(&ways, &cells);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome { machine, cells, targets })
}

/// One line of the printed table: a size, a position and a cache state, for all routines.
#[derive(Clone, Copy)]
struct Spot {
    place: CacheState,
    size: usize,
    source: usize,
    target: usize,
}

impl Spot {
    /// Returns the rate of every routine. Each round gives each routine one turn, so that all of
    /// them meet the same disturbances.
    fn measure(
        &self,
        ways: &[Routine],
        arena: &mut Arena,
        rounds: usize,
        batch_ns: u64,
    ) -> Vec<f64> {
        let mut times = vec![Vec::with_capacity(rounds); ways.len()];
        // The number of copies that take about `batch_ns` at 20 GB/s.
        let count = (batch_ns as usize * 20 / self.size.max(1)).clamp(2, 2000);
        for _ in 0..rounds {
            for (times, way) in times.iter_mut().zip(ways) {
                times.push(self.turn(way, arena, count));
            }
        }
        times
            .iter()
            .map(|times| self.size as f64 / percentile(&sorted(times), self.place.quantile()))
            .collect()
    }

    /// Returns the nanoseconds of one copy, as the mean over one turn.
    fn turn(&self, way: &Routine, arena: &mut Arena, count: usize) -> f64 {
        // The first copy is not timed: the routine before may have left nothing in the caches.
        arena.copy(way, self.source, self.target, self.size);
        let start = now_ns();
        for _ in 0..count {
            let page = if self.place == CacheState::InCache { 0 } else { arena.next(self.size) };
            let target = arena.copy(way, page + self.source, page + self.target, self.size);
            if self.place == CacheState::NotInCacheThenRead {
                std::hint::black_box(sum(target));
            }
        }
        (now_ns() - start) as f64 / count as f64
    }

    fn line(&self, ways: &[Routine], found: &[f64]) -> Vec<String> {
        let Compared { ours, best } = compared(self.place, ways, found);
        let mut cells = vec![bytes(self.size), self.source.to_string(), self.target.to_string()];
        cells.extend(found.iter().map(|rate| format!("{rate:.1}")));
        cells.push(ratio(ours, best));
        cells
    }
}

/// The rates of one line.
struct Compared {
    /// That of the project's own routine.
    ours: f64,
    /// The best of those that it is compared with.
    best: f64,
}

fn compared(place: CacheState, ways: &[Routine], found: &[f64]) -> Compared {
    let of = |wanted: &dyn Fn(&Routine) -> bool| {
        let rates = ways.iter().zip(found).filter(|(way, _)| wanted(way));
        rates.map(|(_, &rate)| rate).fold(0.0, f64::max)
    };
    Compared { ours: of(&|way| way.is_ours), best: of(&|way| place.compares(way)) }
}

fn judge(ways: &[Routine], cells: &[Cell]) -> Vec<TargetResult> {
    let of = |place: CacheState| {
        let rates: Vec<f64> =
            cells.iter().filter(|cell| cell.place == place).map(|cell| cell.gb_per_s).collect();
        let lines = rates.chunks(ways.len()).map(|found| compared(place, ways, found));
        let worst = lines.map(|Compared { ours, best }| ours / best).min_by(f64::total_cmp);
        let target = format!("{}: at every size and alignment, of the best way", place.title());
        TargetResult::at_least(target, worst, Some(1.0), 0.9)
    };
    CacheState::ALL.map(of).into()
}

/// Reads eight bytes of each cache line, which brings the whole line into the caches.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(64).fold(0, |sum, line| {
        line.first_chunk::<8>().map_or(sum, |word| sum.wrapping_add(u64::from_ne_bytes(*word)))
    })
}

/// The memory between whose parts the routines copy.
struct Arena {
    source: Vec<u8>,
    target: Vec<u8>,
    /// Bytes of `source` before its first whole page.
    source_skip: usize,
    /// Bytes of `target` before its first whole page.
    target_skip: usize,
    /// The place of the last copy, in pages.
    at: usize,
}

impl Arena {
    fn new(len: usize) -> Self {
        let (source, target) = (vec![1; len + PAGE], vec![2; len + PAGE]);
        let source_skip = source.as_ptr().align_offset(PAGE);
        let target_skip = target.as_ptr().align_offset(PAGE);
        Self { source, target, source_skip, target_skip, at: 0 }
    }

    /// Returns the next place for `size` bytes, a number of pages. Successive places are far apart,
    /// and a place recurs only after the whole arena, so that it has left the caches.
    fn next(&mut self, size: usize) -> usize {
        let room = (size + 2 * PAGE).next_multiple_of(PAGE);
        // The last page of a vector may be incomplete.
        let pages = (self.source.len() - room) / PAGE - 1;
        self.at = (self.at + 3 * room / PAGE + 5) % pages;
        self.at * PAGE
    }

    /// Copies `len` bytes from `from` to `to`; returns the copy.
    #[allow(unsafe_code, reason = "ways to copy take addresses")]
    fn copy(&mut self, way: &Routine, from: usize, to: usize, len: usize) -> &[u8] {
        let source = &self.source[self.source_skip + from..][..len];
        let target = &mut self.target[self.target_skip + to..][..len];
        // SAFETY: both slices have `len` bytes and belong to two allocations, so they do not
        // overlap.
        unsafe { (way.copy)(source.as_ptr(), target.as_mut_ptr(), len) };
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_copies() {
        let mut arena = Arena::new(NEAR);
        let pattern: Vec<u8> = (0..5000_usize).map(|n| (n % 251) as u8).collect();
        let skip = arena.source_skip;
        arena.source[skip..][..5000].copy_from_slice(&pattern);
        for way in routines::all() {
            for len in [0, 1, 31, 100, 4097] {
                assert_eq!(arena.copy(&way, 5, 40, len), &pattern[5..][..len], "{}", way.name);
                arena.target.fill(0);
            }
        }
    }

    #[test]
    fn places_lie_within_the_arena() {
        let mut arena = Arena::new(NEAR);
        for size in SIZES {
            for _ in 0..1000 {
                let page = arena.next(size);
                assert!(page + size + 2 * PAGE <= arena.source.len(), "{size}");
                assert_eq!(page % PAGE, 0);
            }
        }
    }
}
