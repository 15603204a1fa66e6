//! The common parts of whole-system tests and benchmarks: a sandbox with its own session server,
//! programs that run with deadlines, plain and under Sojourn, hosts and links ([`net`]), and the
//! paths of the built programs.
//!
//! Nothing here is shipped. `lab-peer` (`src/bin/peer`) is an ordinary program that has no code for
//! Sojourn and checks every byte. Read `docs/understand/testing.md` first.

mod built;
pub mod c_interface;
pub mod control_group;
pub mod hold;
pub mod measuring;
pub mod net;
pub mod progress;
mod running;
mod sandbox;
pub mod unit;

pub use built::Built;
pub use running::{Finished, Running};
pub use sandbox::{Mode, Sandbox};
