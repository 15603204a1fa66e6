//! Where the time of a session goes: how long each layer of the network stack takes.
//!
//! The pure core (`ledger`, `chain`) turns a stream of stamped events into times by row; the shell
//! (`programs`) loads eBPF programs that stamp, and reads their ring. It works on any program,
//! under Sojourn or not. Not here: the command (`sojourn time`), stamps of the library's own code.
//! For users there is docs/use/time.md; read `row` and `ledger` first.

mod chain;
mod distribution;
mod error;
mod event;
mod ledger;
#[cfg(test)]
mod ledger_tests;
pub mod picture;
mod probes;
mod programs;
mod report;
mod row;
mod session;

pub use chain::{Disordered, RowTime, Times};
pub use distribution::Distribution;
pub use error::LoadError;
pub use event::{Ends, Event, Inode, Kind, PacketId, Protocol, SocketId, Stamp};
pub use ledger::{Faults, Ledger};
pub use programs::{Cost, Programs};
pub use report::{Report, Taken};
pub use row::{Direction, Row};
pub use session::{Cell, DirectionTimes, Home, Session};
