//! Sessions with other hosts in the program's process: between streams, whose other side the
//! program's calls use, and packet interfaces.
//!
//! [`Carried`] is one session, [`Pump`] all of a process. Neither waits nor has a thread: whoever
//! has reason to (a call that has written, one that waits, a thread that nothing else does) turns
//! the pump, under one lock. The session server makes the records that sessions begin with and
//! takes those that they end with; [`position`] is what it finds if the process dies. Read
//! `docs/understand/moves.md` first.
//!
//! Not here: what TCP is (`sojourn_proto`), how packets come and go (`sojourn_netif`), who turns
//! the pump (`sojourn_library`).
#![allow(
    unsafe_code,
    reason = "what is sent lies in the program's ring, which only this process writes"
)]

pub mod ancillary;
pub mod bulk;
mod carried;
mod counts;
mod datagrams;
#[cfg(test)]
mod datagrams_tests;
mod driven;
#[cfg(test)]
mod fakes;
pub mod figures;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hash;
pub mod in_transit;
mod link_hop;
pub mod options;
mod outgoing;
mod placement;
pub mod position;
mod pump;
#[cfg(test)]
mod pump_tests;
mod round;
#[cfg(test)]
mod round_tests;
pub mod sealed;
pub mod tcp_info;

pub use carried::options::Known;
pub use carried::{Carried, unread, unsent};
pub use counts::Counts;
pub use datagrams::{Datagrams, Sent, Source, Waiting};
pub use in_transit::InTransit;
pub use link_hop::{LinkHop, LinkId};
pub use placement::Placement;
pub use pump::{Pump, now};
