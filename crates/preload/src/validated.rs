//! The memory of the program that a thread has found accessible: the last few ranges in a list, in
//! which any part of a range is found, and many more in a table by first page.
//!
//! Not here: the questions to the kernel (`buffers`).

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
const RANGES: usize = 4;
/// The number of sets in the table, as a power of two, and of ranges in each set.
const SETS_LOG2: u32 = 6;
const WAYS: usize = 2;

/// The kind of access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A range of accessible pages.
#[derive(Default)]
struct Range {
    start: AtomicUsize,
    /// The range's end, with `WRITABLE`; 0 for no range. Ranges are whole pages, so the lowest bit
    /// is free.
    end: AtomicUsize,
}

const WRITABLE: usize = 1;

impl Range {
    #[inline(always)]
    fn has(&self, at: usize, end: usize, access: Access) -> bool {
        let own = self.end.load(Ordering::Relaxed);
        self.start.load(Ordering::Relaxed) <= at
            && end <= own & !WRITABLE
            && (access == Access::Read || own & WRITABLE != 0)
    }

    fn set(&self, start: usize, end: usize) {
        // A signal handler that looks into the range meanwhile finds no range.
        self.end.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.start.store(start, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.end.store(end, Ordering::Relaxed);
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
                range.end.store(0, Ordering::Relaxed);
            }
            compiler_fence(Ordering::SeqCst);
            self.unmapped.store(unmapped, Ordering::Relaxed);
        }
        let turn = self.replace.load(Ordering::Relaxed);
        self.replace.store(turn.wrapping_add(1), Ordering::Relaxed);
        let end = if access == Access::Write { end | WRITABLE } else { end };
        self.ranges[turn as usize % RANGES].set(start, end);
        let set = &self.table[set_of(start)];
        // Replaces a range that begins at the same page, which was too short or not writable; else
        // a vacant place; else any range of the set.
        let vacant = || set.iter().position(|range| range.end.load(Ordering::Relaxed) == 0);
        let same = set.iter().position(|range| range.start.load(Ordering::Relaxed) == start);
        let way = same.or_else(vacant).unwrap_or((turn as usize / RANGES) % WAYS);
        set[way].set(start, end);
    }
}

/// Returns the table's set for a range that begins at `at`. Higher bits are folded in, so that
/// buffers at regular distances fall into different sets.
#[inline(always)]
fn set_of(at: usize) -> usize {
    let page = at / PAGE;
    (page ^ page >> SETS_LOG2 ^ page >> (2 * SETS_LOG2)) & ((1 << SETS_LOG2) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_for_each_of_many_clients_is_remembered() {
        for stride in [4, 5, 16, 17] {
            let validated = Validated::default();
            let place = |n: usize| (1 << 40) + n * stride * PAGE;
            for n in 0..60 {
                validated.note(0, place(n), place(n) + 4 * PAGE, Access::Write);
            }
            let is_known = |n: &usize| {
                let at = place(*n) + 100;
                validated.table[set_of(at)].iter().any(|r| r.has(at, at + 5000, Access::Write))
            };
            let known = (0..60).filter(is_known).count();
            assert!(known >= 48, "{known} of 60 at a distance of {stride} pages");
        }
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
