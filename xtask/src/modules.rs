//! The check that modules within a crate import each other in one direction only.
//!
//! A module here is a file: a block `mod x { … }` belongs to the file around it. One file imports
//! another if a path in it (`use`, or any path in code) names an item that the other defines. A
//! re-export is followed to the definition. So a parent may declare its children and re-export
//! their items. But a child that uses an item of its parent makes a circle with a parent that uses
//! an item of the child. Code that is compiled for tests only is left out. Not here: dependencies
//! between crates (`layers`).
//!
//! Read `source` (files to paths), then `resolve` (paths to files), then `circles`.

mod circles;
mod resolve;
mod source;
mod tree;

pub(crate) use circles::{Imports, circles};
pub(crate) use resolve::{FilePair, imports};
pub(crate) use source::{is_for_tests, read_crate};
pub(crate) use tree::{FileId, Tree};

#[cfg(test)]
mod tests;
