//! What all of a process's library shares: the library itself, what each process in a line of
//! descent by `fork` has of its own, the configuration, and what is remembered between moves.
//!
//! Rooms above add what is done with it.

pub(crate) mod deferred;
#[cfg(test)]
mod deferred_tests;
pub(crate) mod engine;
pub(crate) mod library;
pub(crate) mod looks;
pub(crate) mod patience;
pub(crate) mod remembered;
pub(crate) mod room;
pub(crate) mod thresholds;
