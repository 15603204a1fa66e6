//! The atomics facade: the real types, or loom's when a model is checked (`--cfg loom`).
//!
//! Everything that two address spaces touch goes through these names, so that the models under
//! `tests/` run the very code that ships.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
