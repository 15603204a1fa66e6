//! What every diagnostic means, and what to do about it.
//!
//! One entry a code: title, explanation, a sample that gives exactly this diagnostic and the same
//! sample put right. `--explain` shows it; a test compiles both samples of every entry.

mod attributes;
mod compatibility;
mod configuration;
mod explanation;
mod files;
mod grammar;
mod names;
mod operations;
mod types;

pub use explanation::{Explanation, Sample};

use super::codes::Code;

/// All entries in order of their codes.
pub fn entries() -> impl Iterator<Item = &'static Explanation> {
    files::ENTRIES
        .iter()
        .chain(grammar::ENTRIES)
        .chain(names::ENTRIES)
        .chain(types::ENTRIES)
        .chain(attributes::ENTRIES)
        .chain(operations::ENTRIES)
        .chain(configuration::ENTRIES)
        .chain(compatibility::ENTRIES)
}

/// The entry of a code.
#[must_use]
pub fn entry(code: Code) -> Option<&'static Explanation> {
    entries().find(|e| e.code == code)
}

#[cfg(test)]
mod tests;
