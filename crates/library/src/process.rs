//! The state that a process's library shares: the library itself, each process's part in a line of
//! descent by `fork`, the configuration, and the memory of moves.
//!
//! The other folders add methods that work on this state.

pub(crate) mod deferred;
#[cfg(test)]
mod deferred_tests;
pub(crate) mod engine;
pub(crate) mod library;
pub(crate) mod lifetimes;
pub(crate) mod looks;
pub(crate) mod patience;
pub(crate) mod remembered;
pub(crate) mod stillness;
pub(crate) mod thresholds;
