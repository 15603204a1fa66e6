//! The atomics facade: the real types, or loom's when a model is checked (`--cfg loom`).
//!
//! All code that accesses shared words uses these names, so that the models under `tests/` run the
//! code that ships.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::AtomicBool;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicBool;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use modelled::AtomicU32;

/// Loom's 32-bit atomic with plain stores made into swaps.
///
/// Loom keeps the modification order of an atomic as a partial order and does not place a store
/// after a read-modify-write that ran before it (0.7: `State::store` in `rt/atomic.rs` joins only
/// what the storing thread has seen). A bell is stored by its waiter and swapped by its ringers, so
/// loom would let a ringer behind a full fence still read an older ringer's swap in place of the
/// waiter's newer announcement, which no machine and no reading of the C++ model allows: a store
/// cannot come between a swap and the value it swapped out. As swaps all the stores of a bell are
/// in one order, that of execution, and loom tries all of those. A swap also carries on a release
/// sequence, which a store by another thread would end; the bells are relaxed throughout, so
/// nothing is hidden by that.
#[cfg(loom)]
mod modelled {
    use super::Ordering;

    /// A 32-bit word.
    #[derive(Debug)]
    pub struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        /// Creates a word with `value`.
        pub fn new(value: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(value))
        }

        /// Loads the value.
        pub fn load(&self, ordering: Ordering) -> u32 {
            self.0.load(ordering)
        }

        /// Stores a value.
        pub fn store(&self, value: u32, ordering: Ordering) {
            self.0.swap(value, ordering);
        }

        /// Stores a value and returns the old one.
        pub fn swap(&self, value: u32, ordering: Ordering) -> u32 {
            self.0.swap(value, ordering)
        }

        /// Adds to the value and returns the old one.
        pub fn fetch_add(&self, value: u32, ordering: Ordering) -> u32 {
            self.0.fetch_add(value, ordering)
        }

        /// Sets bits and returns the old value.
        pub fn fetch_or(&self, bits: u32, ordering: Ordering) -> u32 {
            self.0.fetch_or(bits, ordering)
        }

        /// Keeps only the bits of `mask` and returns the old value.
        pub fn fetch_and(&self, mask: u32, ordering: Ordering) -> u32 {
            self.0.fetch_and(mask, ordering)
        }
    }
}
