//! The policy: which sessions are worth moving, and which have to stay in the kernel.
//!
//! Not here: the moves (`moves`).

pub(crate) mod aggregate;
pub(crate) mod bulk;
pub(crate) mod hot;
pub(crate) mod kept;
pub(crate) mod measured;
#[cfg(test)]
mod measured_tests;
pub(crate) mod rings;
pub(crate) mod unmanaged_sets;
