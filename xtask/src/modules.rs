//! The check that modules within a crate import each other in one direction only.
//!
//! A module is a file here: what stands in a block `mod x { … }` belongs to the file around it. One
//! file imports another if a path in it (`use`, or any path in code) names an item which the other
//! defines. A re-export is followed to the definition, so that a parent may declare its children
//! and re-export their items, but a child that uses an item of its parent's own makes a circle with
//! a parent that uses the child's. What is compiled for tests only is left out. Not here: which
//! crate may use which, and how many files may still be in circles (`layers`).
//!
//! Read `source` (files to paths), then `resolve` (paths to files), then `circles`.

mod circles;
mod resolve;
mod source;
mod tree;

pub(crate) use circles::{Imports, circles};
pub(crate) use resolve::imports;
pub(crate) use source::read_crate;
pub(crate) use tree::{FileId, Tree};

#[cfg(test)]
mod tests;
