//! A pool whose items are never freed, only used again, each named by its slot.
//!
//! So any thread may look at an item at any time. Items are made in chunks, on first use. Not here:
//! the items (`session::pool`, `ready::sets`).

use crate::fds::slot::Slot;
use crate::host::lock::lock;
use once_cell::race::OnceBox;
use std::sync::Mutex;

/// The most chunks of a pool.
const CHUNKS: usize = 1024;

/// The items of one process, made `CHUNK` at a time.
pub(crate) struct SlotPool<T, const CHUNK: usize> {
    // One word for each chunk: every process touches all of these pages when it makes its pool.
    chunks: [OnceBox<[T; CHUNK]>; CHUNKS],
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    slots: Vec<Slot>,
    made: u32,
}

impl<T, const CHUNK: usize> SlotPool<T, CHUNK> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: [const { OnceBox::new() }; CHUNKS],
            free: Mutex::new(Free { slots: Vec::new(), made: 0 }),
        }
    }

    /// Returns the item in a slot that was handed out.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        let index = slot.index();
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// Hands out a slot for a new use; `None` if all are in use. `make` makes the item of a slot.
    pub(crate) fn take(&self, make: impl Fn(Slot) -> T) -> Option<Slot> {
        let mut free = lock(&self.free);
        if let Some(slot) = free.slots.pop() {
            return Some(slot);
        }
        let slot = Slot::new(free.made);
        let index = slot.index() / CHUNK;
        let numbers = (index * CHUNK) as u32..((index + 1) * CHUNK) as u32;
        let chunk = self.chunks.get(index)?;
        chunk.get_or_init(|| made(numbers.map(|number| make(Slot::new(number)))));
        free.made += 1;
        Some(slot)
    }

    /// Puts a slot back, to be handed out again.
    pub(crate) fn give_back(&self, slot: Slot) {
        lock(&self.free).slots.push(slot);
    }

    /// Iterates over the items that were made, in use or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().filter_map(OnceBox::get).flatten()
    }
}

/// Collects the items of a chunk, not by way of an array, which would be on the caller's stack
/// first.
pub(crate) fn made<T, const CHUNK: usize>(items: impl Iterator<Item = T>) -> Box<[T; CHUNK]> {
    let items: Box<[T]> = items.collect();
    let Ok(items) = items.try_into() else { unreachable!("as many as the chunk has") };
    items
}

impl<T, const CHUNK: usize> core::fmt::Debug for SlotPool<T, CHUNK> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlotPool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn slots_are_used_again_and_items_stay() {
        let pool = SlotPool::<Slot, 4>::new();
        let take = || pool.take(|slot| slot).unwrap();
        let taken: Vec<Slot> = (0..6).map(|_| take()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5].map(Slot::new));
        assert!(taken.iter().all(|slot| pool.get(*slot) == Some(slot)));
        assert_eq!(pool.all().count(), 8, "two chunks");
        pool.give_back(taken[1]);
        assert_eq!([take(), take()], [taken[1], Slot::new(6)]);
        assert_eq!(pool.get(Slot::new(8)), None, "its chunk was not made");
    }

    #[test]
    fn a_pool_has_an_end() {
        let pool = SlotPool::<(), 1>::new();
        let taken = core::iter::from_fn(|| pool.take(|_| ()));
        assert_eq!(taken.count(), CHUNKS);
        pool.give_back(Slot::new(7));
        assert_eq!(pool.take(|_| ()), Some(Slot::new(7)));
        assert_eq!(pool.take(|_| ()), None);
    }
}
