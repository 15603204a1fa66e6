//! The memory system of a machine of today: two first-level caches and a second level for both,
//! write-back, lines of 64 bytes.
//!
//! Costs are those of a processor that waits for each miss; one that goes on meanwhile hides some
//! of them. Its store buffer is never full. Not here: a last level, prefetching, translation
//! buffers.

use crate::cache::{Associativity, Cache, Line, Shape};
use crate::counts::{Access, Mode, Reference, Totals};
use crate::station::lines;

const LINE_BYTES: u64 = 64;
const FIRST_BYTES: usize = 32 << 10;
const FIRST_WAYS: usize = 8;
const SECOND_BYTES: usize = 1 << 20;
const SECOND_WAYS: usize = 16;
/// Cycles of a miss that the second level answers.
const SECOND_CYCLES: u64 = 14;
/// Cycles of a miss that memory answers.
const MEMORY_CYCLES: u64 = 200;

/// The memory system, with its counts.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    instructions: Cache,
    data: Cache,
    second: Cache,
    /// The counts so far.
    pub totals: Totals,
}

impl Default for Hierarchy {
    fn default() -> Self {
        Self::new()
    }
}

impl Hierarchy {
    /// Makes a memory system with empty caches.
    #[must_use]
    pub fn new() -> Self {
        let cache = |bytes, ways| {
            let associativity = Associativity::Ways(ways);
            Cache::new(Shape { bytes, line_bytes: LINE_BYTES as usize, associativity })
        };
        Self {
            instructions: cache(FIRST_BYTES, FIRST_WAYS),
            data: cache(FIRST_BYTES, FIRST_WAYS),
            second: cache(SECOND_BYTES, SECOND_WAYS),
            totals: Totals::default(),
        }
    }

    /// Takes a reference. A fetch is an instruction.
    pub fn refer(&mut self, reference: &Reference) {
        let is_fetch = reference.access == Access::Fetch;
        let counts = self.totals.of(reference.mode);
        match reference.access {
            Access::Fetch => counts.instructions += 1,
            Access::Read => counts.reads += 1,
            Access::Write => counts.writes += 1,
        }
        for line in lines(reference, LINE_BYTES) {
            let first = if is_fetch { &mut self.instructions } else { &mut self.data };
            if first.touch(line) {
                continue;
            }
            first.fill(line);
            let cycles = self.second_level(line);
            let counts = self.totals.of(reference.mode);
            match reference.access {
                Access::Fetch => {
                    counts.fetch_misses += 1;
                    counts.fetch_cycles += cycles;
                }
                Access::Read => {
                    counts.read_misses += 1;
                    counts.read_cycles += cycles;
                }
                Access::Write => {}
            }
        }
    }

    /// Counts an instruction whose bytes are in the line that the last fetch found.
    pub fn step(&mut self, mode: Mode) {
        self.totals.of(mode).instructions += 1;
    }

    /// Returns the cycles until the second level, or memory, has answered.
    fn second_level(&mut self, line: Line) -> u64 {
        if self.second.touch(line) {
            return SECOND_CYCLES;
        }
        self.second.fill(line);
        MEMORY_CYCLES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refer(access: Access, address: u64) -> Reference {
        Reference { mode: Mode::System, access, address, bytes: 8 }
    }

    #[test]
    fn what_the_first_level_has_lost_the_second_still_has() {
        let mut memory = Hierarchy::new();
        // Nine lines of one set of the first level, which has eight ways.
        let apart = (FIRST_BYTES / FIRST_WAYS) as u64;
        for _ in 0..2 {
            (0..9).for_each(|number| memory.refer(&refer(Access::Read, number * apart)));
        }
        let system = memory.totals.system;
        assert_eq!((system.reads, system.read_misses), (18, 18));
        assert_eq!(system.read_cycles, 9 * MEMORY_CYCLES + 9 * SECOND_CYCLES);
    }

    #[test]
    fn stores_take_a_line_and_no_time() {
        let mut memory = Hierarchy::new();
        memory.refer(&refer(Access::Write, 0));
        memory.refer(&refer(Access::Read, 8));
        assert_eq!(memory.totals.cycles(), 0);
        // Instructions are in a cache of their own, and the second level is for both.
        memory.refer(&refer(Access::Fetch, 0));
        assert_eq!(memory.totals.system.fetch_cycles, SECOND_CYCLES);
    }
}
