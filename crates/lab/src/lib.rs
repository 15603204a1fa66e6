//! What whole-system tests and benchmarks share: a sandbox with a session server of its own,
//! programs run plain and under Sojourn with deadlines, hosts and links ([`net`]), and what was
//! built.
//!
//! Nothing here is shipped. `lab-peer` (`src/bin/peer`) is an ordinary program that knows nothing
//! of Sojourn and checks every byte. Read `docs/understand/testing.md` first.

mod built;
pub mod measuring;
pub mod net;
pub mod progress;
mod running;
mod sandbox;
mod unit;

pub use built::Built;
pub use running::{Finished, Running};
pub use sandbox::{Mode, Sandbox};
