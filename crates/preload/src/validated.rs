//! The memory of the program that a thread has found accessible: the last few ranges in a list, in
//! which any part of a range is found, and many more in a table by first page.
//!
//! Not here: the questions to the kernel (`buffers`).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// Bytes of a page, and their power of two.
pub(crate) const PAGE: usize = 1 << PAGE_LOG2;
const PAGE_LOG2: u32 = 12;
const RANGES: usize = 4;
/// The number of sets in the table, as a power of two, and of ranges in each set.
const SETS_LOG2: u32 = 6;
const WAYS: usize = 4;

/// The kind of access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A range of accessible pages in one word, so that a signal handler finds it whole: the first
/// page's number, the number of pages (0 for no range), and `WRITABLE`.
#[derive(Default)]
struct Range(AtomicU64);

const WRITABLE: u64 = 1;
/// Bits of the number of pages. What is left has room for any page of the processor's address space
/// (57 bits).
const PAGES_BITS: u32 = 18;
const PAGES_MAX: usize = (1 << PAGES_BITS) - 1;

/// Returns the address of a range's first page.
#[inline(always)]
fn start_of(word: u64) -> usize {
    ((word >> (PAGES_BITS + 1)) as usize) << PAGE_LOG2
}

impl Range {
    fn begins_at(&self, start: usize) -> bool {
        start_of(self.0.load(Ordering::Relaxed)) == start
    }

    #[inline(always)]
    fn has(&self, at: usize, end: usize, access: Access) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        let start = start_of(word);
        let pages = (word >> 1) as usize & PAGES_MAX;
        start <= at
            && end <= start + pages * PAGE
            && (access == Access::Read || word & WRITABLE != 0)
    }

    fn is_vacant(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Notes the pages from `start` to `end`; of very many only the first.
    fn set(&self, start: usize, end: usize, access: Access) {
        let pages = ((end - start) / PAGE).min(PAGES_MAX) as u64;
        let page = (start / PAGE) as u64;
        let writable = if access == Access::Write { WRITABLE } else { 0 };
        self.0.store(page << (PAGES_BITS + 1) | pages << 1 | writable, Ordering::Relaxed);
    }
}

/// The ranges that a thread has found accessible.
pub(crate) struct Validated {
    ranges: [Range; RANGES],
    table: [[Range; WAYS]; 1 << SETS_LOG2],
    replace: AtomicU32,
    /// The count of unmappings (`buffers`) at which the ranges were noted.
    unmapped: AtomicU32,
}

impl Default for Validated {
    fn default() -> Self {
        Self {
            ranges: Default::default(),
            table: core::array::from_fn(|_| Default::default()),
            replace: AtomicU32::new(0),
            unmapped: AtomicU32::new(0),
        }
    }
}

impl Validated {
    /// Returns true if all memory from `at` to `end` is known to be accessible. `unmapped` is the
    /// present count of unmappings.
    #[inline(always)]
    pub(crate) fn has(&self, unmapped: u32, at: usize, end: usize, access: Access) -> bool {
        if self.unmapped.load(Ordering::Relaxed) != unmapped {
            return false;
        }
        let mut known = self.ranges.iter().chain(&self.table[set_of(at)]);
        known.any(|range| range.has(at, end, access))
    }

    /// Notes that the pages from `start` to `end` are accessible. `unmapped` is the count of
    /// unmappings before they were probed. Ranges that were noted at another count are forgotten.
    pub(crate) fn note(&self, unmapped: u32, start: usize, end: usize, access: Access) {
        if self.unmapped.load(Ordering::Relaxed) != unmapped {
            for range in self.ranges.iter().chain(self.table.iter().flatten()) {
                range.0.store(0, Ordering::Relaxed);
            }
            compiler_fence(Ordering::SeqCst);
            self.unmapped.store(unmapped, Ordering::Relaxed);
        }
        let turn = self.replace.load(Ordering::Relaxed);
        self.replace.store(turn.wrapping_add(1), Ordering::Relaxed);
        self.ranges[turn as usize % RANGES].set(start, end, access);
        let set = &self.table[set_of(start)];
        // Replaces a range that begins at the same page, which was too short or not writable; else
        // a vacant place; else any range of the set.
        let same = set.iter().position(|range| range.begins_at(start));
        let vacant = || set.iter().position(Range::is_vacant);
        let way = same.or_else(vacant).unwrap_or((turn as usize / RANGES) % WAYS);
        set[way].set(start, end, access);
    }
}

/// Returns the table's set for a range that begins at `at`, by Fibonacci hashing, so that buffers
/// at regular distances fall into different sets. Higher bits are folded in first, because
/// multiples of some distances (16 pages) would share sets.
#[inline(always)]
fn set_of(at: usize) -> usize {
    let page = (at / PAGE) as u64;
    ((page ^ page >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SETS_LOG2)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_for_each_of_many_clients_is_remembered() {
        for stride in [1, 4, 5, 8, 16, 17, 64, 128] {
            let validated = Validated::default();
            let place = |n: usize| (1 << 40) + n * stride * PAGE;
            for n in 0..120 {
                validated.note(0, place(n), place(n) + 4 * PAGE, Access::Write);
            }
            let is_known = |n: &usize| {
                let at = place(*n) + 100;
                validated.table[set_of(at)].iter().any(|r| r.has(at, at + 5000, Access::Write))
            };
            let known = (0..120).filter(is_known).count();
            assert!(known >= 110, "{known} of 120 at a distance of {stride} pages");
        }
    }

    #[test]
    fn the_longest_and_the_highest_range_are_whole() {
        let validated = Validated::default();
        let top = (1 << 57) - PAGE;
        validated.note(0, top, top + PAGE, Access::Write);
        assert!(validated.has(0, top, top + PAGE, Access::Write));
        assert!(!validated.has(0, top - 1, top + PAGE, Access::Read));
        let (start, most) = (1 << 30, PAGES_MAX * PAGE);
        validated.note(0, start, start + most + 5 * PAGE, Access::Read);
        assert!(validated.has(0, start, start + most, Access::Read));
        assert!(!validated.has(0, start, start + most + 1, Access::Read));
    }

    #[test]
    fn what_may_only_be_read_is_not_said_to_be_writable() {
        let validated = Validated::default();
        validated.note(0, PAGE, 3 * PAGE, Access::Read);
        let has = |at, end, access| {
            validated
                .ranges
                .iter()
                .chain(&validated.table[set_of(at)])
                .any(|r| r.has(at, end, access))
        };
        assert!(has(PAGE, 3 * PAGE, Access::Read) && !has(PAGE, 3 * PAGE, Access::Write));
        assert!(!has(PAGE, 3 * PAGE + 1, Access::Read));
        validated.note(0, PAGE, 3 * PAGE, Access::Write);
        assert!(has(PAGE, 3 * PAGE, Access::Write));
        // Another count: something was unmapped meanwhile.
        validated.note(1, 8 * PAGE, 9 * PAGE, Access::Read);
        assert!(!has(PAGE, 3 * PAGE, Access::Read));
    }
}
