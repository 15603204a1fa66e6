//! The memory system of a DECstation 5000/200, as Chen and Bershad simulated it in 1993: two caches
//! that are looked up by physical addresses, write-through, with a write buffer.
//!
//! What table 2-1 of their paper has is here but for the translation buffer. A reference wider than
//! the machine's word of four bytes is as many references as it has words. Variants of the caches
//! (`Variant`) answer what of the misses is whose fault. Not here: today's machines (`hierarchy`).

use crate::buffer::{Timing, WriteBuffer};
use crate::cache::{Associativity, Cache, Line, Shape};
use crate::counts::{Access, Mode, Reference, Totals};

const CACHE_BYTES: usize = 64 << 10;
/// Bytes that a miss fetches, which are a line of the instruction cache.
const BLOCK_BYTES: u64 = 16;
/// Bytes of a word, which is a line of the data cache.
const WORD_BYTES: u64 = 4;
/// Cycles of a miss.
const MISS_CYCLES: u64 = 15;
const BUFFER: Timing = Timing { entries: 6, same_page: 1, other_page: 5, page_bytes: 4096 };

/// The layout of both caches, each of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The machine's own.
    DirectMapped,
    /// Two places for each line.
    TwoWay,
    /// Any place for each line: what misses here is more than the cache has room for.
    FullyAssociative,
    /// Direct-mapped, with another pair of caches of the same size for each mode: what misses here
    /// is not the other mode's fault.
    Separate,
}

impl Variant {
    fn associativity(self) -> Associativity {
        match self {
            Self::DirectMapped | Self::Separate => Associativity::Ways(1),
            Self::TwoWay => Associativity::Ways(2),
            Self::FullyAssociative => Associativity::Full,
        }
    }
}

#[derive(Clone, Debug)]
struct Pair {
    instructions: Cache,
    data: Cache,
}

impl Pair {
    fn new(variant: Variant) -> Self {
        let cache = |line_bytes: u64| {
            let (bytes, associativity) = (CACHE_BYTES, variant.associativity());
            Cache::new(Shape { bytes, line_bytes: line_bytes as usize, associativity })
        };
        Self { instructions: cache(BLOCK_BYTES), data: cache(WORD_BYTES) }
    }
}

/// The memory system, with its counts.
#[derive(Clone, Debug)]
pub struct Station {
    /// One pair, or one for each mode.
    caches: Vec<Pair>,
    buffer: WriteBuffer,
    /// Cycles since the beginning: one for each instruction, and the stalls.
    now: u64,
    /// The counts so far.
    pub totals: Totals,
}

impl Station {
    /// Makes a memory system with empty caches.
    #[must_use]
    pub fn new(variant: Variant) -> Self {
        let count = if variant == Variant::Separate { 2 } else { 1 };
        Self {
            caches: vec![Pair::new(variant); count],
            buffer: WriteBuffer::new(BUFFER),
            now: 0,
            totals: Totals::default(),
        }
    }

    /// Takes a reference. A fetch is an instruction.
    pub fn refer(&mut self, reference: &Reference) {
        let totals = self.totals.of(reference.mode);
        match reference.access {
            Access::Fetch => {
                totals.instructions += 1;
                self.now += 1;
                self.fetch(reference);
            }
            Access::Read => {
                totals.reads += 1;
                self.read(reference);
            }
            Access::Write => {
                totals.writes += 1;
                self.write(reference);
            }
        }
    }

    /// Counts an instruction whose bytes are in the line that the last fetch found.
    pub fn step(&mut self, mode: Mode) {
        self.totals.of(mode).instructions += 1;
        self.now += 1;
    }

    /// Takes a read of a device, which no cache holds.
    pub fn read_device(&mut self, mode: Mode) {
        let waited = self.buffer.read(self.now, MISS_CYCLES);
        self.now += waited + MISS_CYCLES;
        let totals = self.totals.of(mode);
        totals.store_cycles += waited;
        totals.device_cycles += MISS_CYCLES;
    }

    fn pair(&mut self, mode: Mode) -> &mut Pair {
        let at = if self.caches.len() > 1 && mode == Mode::System { 1 } else { 0 };
        &mut self.caches[at]
    }

    fn fetch(&mut self, reference: &Reference) {
        for line in lines(reference, BLOCK_BYTES) {
            let cache = &mut self.pair(reference.mode).instructions;
            if !cache.touch(line) {
                cache.fill(line);
                self.miss(reference.mode, true);
            }
        }
    }

    fn read(&mut self, reference: &Reference) {
        for word in lines(reference, WORD_BYTES) {
            let cache = &mut self.pair(reference.mode).data;
            if !cache.touch(word) {
                let words = BLOCK_BYTES / WORD_BYTES;
                let first = word.0 / words * words;
                (first..first + words).for_each(|word| cache.fill(Line(word)));
                self.miss(reference.mode, false);
            }
        }
    }

    /// Writes through: a whole word gets a place in the cache without being read before; of less
    /// than a word only what is there already is written.
    fn write(&mut self, reference: &Reference) {
        let end = reference.address.saturating_add(reference.bytes);
        for word in lines(reference, WORD_BYTES) {
            let address = word.0 * WORD_BYTES;
            let is_whole = reference.address <= address && address + WORD_BYTES <= end;
            let cache = &mut self.pair(reference.mode).data;
            if is_whole {
                cache.fill(word);
            } else {
                cache.touch(word);
            }
            let waited = self.buffer.store(self.now, address);
            self.now += waited;
            self.totals.of(reference.mode).store_cycles += waited;
        }
    }

    fn miss(&mut self, mode: Mode, is_fetch: bool) {
        let waited = self.buffer.read(self.now, MISS_CYCLES);
        self.now += waited + MISS_CYCLES;
        let totals = self.totals.of(mode);
        totals.store_cycles += waited;
        if is_fetch {
            totals.fetch_misses += 1;
            totals.fetch_cycles += MISS_CYCLES;
        } else {
            totals.read_misses += 1;
            totals.read_cycles += MISS_CYCLES;
        }
    }
}

/// The most bytes that one instruction refers to (those of FXSAVE). What claims more is taken for
/// as much, so that every loop over a reference ends soon.
const BYTES_MAX: u64 = 512;

/// Returns the lines that a reference touches.
pub(crate) fn lines(reference: &Reference, line_bytes: u64) -> impl Iterator<Item = Line> + use<> {
    let last = reference.address.saturating_add(reference.bytes.clamp(1, BYTES_MAX) - 1);
    (reference.address / line_bytes..=last / line_bytes).map(Line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refer(access: Access, address: u64, bytes: u64) -> Reference {
        Reference { mode: Mode::User, access, address, bytes }
    }

    fn run(variant: Variant, references: &[Reference]) -> Totals {
        let mut station = Station::new(variant);
        references.iter().for_each(|one| station.refer(one));
        station.totals
    }

    #[test]
    fn a_read_miss_fetches_four_words_and_a_write_its_own_only() {
        let reads = [0, 4, 8, 12].map(|address| refer(Access::Read, address, 4));
        assert_eq!(run(Variant::DirectMapped, &reads).user.read_misses, 1);
        let after_write = [refer(Access::Write, 0, 4), refer(Access::Read, 0, 4)];
        assert_eq!(run(Variant::DirectMapped, &after_write).user.read_misses, 0);
        let beside = [refer(Access::Write, 0, 4), refer(Access::Read, 4, 4)];
        assert_eq!(run(Variant::DirectMapped, &beside).user.read_misses, 1);
        let part = [refer(Access::Write, 0, 1), refer(Access::Read, 0, 4)];
        assert_eq!(run(Variant::DirectMapped, &part).user.read_misses, 1);
    }

    #[test]
    fn wide_references_are_as_many_words_and_fetches_as_many_lines() {
        let wide = [refer(Access::Read, 12, 8), refer(Access::Fetch, 14, 4)];
        let totals = run(Variant::DirectMapped, &wide);
        assert_eq!((totals.user.reads, totals.user.read_misses), (1, 2));
        assert_eq!((totals.user.instructions, totals.user.fetch_misses), (1, 2));
        assert_eq!(totals.user.cache_cycles(), 4 * MISS_CYCLES);
    }

    #[test]
    fn the_modes_drive_each_other_out_unless_each_has_its_own() {
        let user = refer(Access::Fetch, 0, 1);
        let system = Reference { mode: Mode::System, address: 64 << 10, ..user };
        let trace = [user, system].repeat(10);
        let misses = |variant| {
            let totals = run(variant, &trace);
            (totals.user.fetch_misses, totals.system.fetch_misses)
        };
        assert_eq!(misses(Variant::DirectMapped), (10, 10));
        for variant in [Variant::Separate, Variant::TwoWay, Variant::FullyAssociative] {
            assert_eq!(misses(variant), (1, 1), "{variant:?}");
        }
    }

    /// A trace with the cycles of each part computed by hand.
    #[test]
    fn stalls_add_up() {
        let mut station = Station::new(Variant::DirectMapped);
        // Cycle 1: a miss, 15 cycles.
        station.refer(&refer(Access::Fetch, 0, 4));
        // Cycle 16: a store of two words, which begins at once and takes 5 + 1 cycles.
        station.refer(&refer(Access::Write, 0x1000, 8));
        station.step(Mode::User);
        // Cycle 17: a read that waits for the first word's store until cycle 21.
        station.refer(&refer(Access::Read, 0x2000, 4));
        let user = station.totals.user;
        assert_eq!((user.fetch_cycles, user.read_cycles, user.store_cycles), (15, 15, 4));
        station.read_device(Mode::User);
        // Cycle 36: the second word's store began at 36 at the earliest, so nothing is under way.
        assert_eq!(station.totals.user.device_cycles, 15);
        assert_eq!(station.totals.cycles(), 15 + 15 + 4 + 15);
        assert_eq!(station.totals.instructions(), 2);
    }
}
