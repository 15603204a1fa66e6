//! Models of memory systems: what a stream of references costs in caches and a write buffer.
//!
//! Pure: references in, counts out. `Study` feeds one trace to several memory systems at once, and
//! `examples/plugin.rs`, a plugin of QEMU's, gives it all instructions and accesses of a virtual
//! machine. Read `counts` (what a reference is), then `station` (the DECstation of 1993). Not here:
//! the virtual machine, its programs and the table (`sojourn-bench`). The whole is described in
//! docs/understand/memory-study.md.

mod buffer;
mod cache;
mod counts;
mod hierarchy;
pub mod markers;
mod station;
mod study;
mod touched;

pub use buffer::{Timing, WriteBuffer};
pub use cache::{Associativity, Cache, Line, Shape};
pub use counts::{Access, Counts, Mode, Reference, Totals};
pub use hierarchy::Hierarchy;
pub use station::{Station, Variant};
pub use study::{Mcpi, Parts, Report, Study, WorkingSet};
