//! The descriptor table: the entries of all descriptor numbers.
//!
//! Entries are in chunks that are made on first use and never freed. So any thread may look at any
//! time, and a `fork` child finds the entries as they were. Not here: one entry (`entry`).

use crate::fds::entry::{CHUNK, FdEntry};
use crate::fds::pool::made;
use core::sync::atomic::Ordering;
use once_cell::race::OnceBox;

const CHUNKS: usize = 4096;

/// The entries of all descriptor numbers.
pub(crate) struct Table {
    chunks: [OnceBox<[FdEntry; CHUNK]>; CHUNKS],
}

impl core::fmt::Debug for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { chunks: [const { OnceBox::new() }; CHUNKS] }
    }

    /// Returns the entry of a number, and makes its chunk if need be. `None` for numbers that the
    /// table does not cover.
    #[inline]
    pub(crate) fn entry(&self, fd: i32) -> Option<&FdEntry> {
        let index = usize::try_from(fd).ok()?;
        let chunk = self.chunks.get(index / CHUNK)?;
        let chunk = chunk.get().unwrap_or_else(|| chunk.get_or_init(new_chunk));
        chunk.get(index % CHUNK)
    }

    /// Returns the entry of a number if its chunk exists.
    #[inline]
    pub(crate) fn known(&self, fd: i32) -> Option<&FdEntry> {
        let index = usize::try_from(fd).ok()?;
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// Returns the entry of number 0, which those of the next numbers follow
    /// ([`FdEntry::LAYOUT`]).
    pub(crate) fn first(&self) -> Option<&FdEntry> {
        self.known(0)
    }

    /// Iterates over the numbers from `first` to `last` whose chunks exist.
    pub(crate) fn known_within(&self, first: u32, last: u32) -> impl Iterator<Item = i32> + '_ {
        let of = |number: u32| (number as usize / CHUNK).min(CHUNKS - 1);
        let there = (of(first)..=of(last)).filter(|index| self.chunks[*index].get().is_some());
        there
            .flat_map(|index| index * CHUNK..(index + 1) * CHUNK)
            .filter(move |number| (first as usize..=last as usize).contains(number))
            .map(|number| number as i32)
    }

    /// Iterates over the numbers that have a session.
    pub(crate) fn with_sessions(&self) -> impl Iterator<Item = i32> + '_ {
        self.numbers_where(|entry| entry.session.load(Ordering::SeqCst).is_some())
    }

    /// Iterates over the numbers that are epoll sets.
    pub(crate) fn with_sets(&self) -> impl Iterator<Item = i32> + '_ {
        self.numbers_where(|entry| entry.epoll.load(Ordering::SeqCst).is_some())
    }

    /// Iterates over the numbers with a recorded reason for staying in the kernel.
    pub(crate) fn kept(&self) -> impl Iterator<Item = i32> + '_ {
        self.numbers_where(|entry| entry.kept_for().is_some())
    }

    /// Returns the first number behind all entries.
    pub(crate) fn end(&self) -> i32 {
        let last = self.chunks.iter().rposition(|chunk| chunk.get().is_some());
        last.map_or(0, |index| ((index + 1) * CHUNK) as i32)
    }

    fn numbers_where(&self, is_it: fn(&FdEntry) -> bool) -> impl Iterator<Item = i32> + '_ {
        self.chunks.iter().enumerate().flat_map(move |(index, chunk)| {
            let entries = chunk.get().map_or(&[][..], |chunk| &chunk[..]);
            let found = entries.iter().enumerate().filter(move |(_, entry)| is_it(entry));
            found.map(move |(at, _)| (index * CHUNK + at) as i32)
        })
    }
}

#[cold]
fn new_chunk() -> Box<[FdEntry; CHUNK]> {
    made((0..CHUNK).map(|_| FdEntry::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_have_no_entry() {
        let table = Table::new();
        assert!(table.entry(-1).is_none());
        assert!(table.entry(i32::MAX).is_none());
        assert!(table.known(5000).is_none());
        assert!(table.entry(5000).is_some());
        assert!(table.known(5000).is_some());
    }
}
