//! The driver of sessions with other hosts, in the program's process: between streams, whose other
//! side the program's calls use, and packet interfaces.
//!
//! [`Carried`] is one session, [`Pump`] has all sessions of a process. Neither waits nor has a
//! thread: every thread that has reason to (one in a call that has written, one in a call that
//! waits, one that does nothing else) turns the pump, under one lock. The session server makes the
//! records that sessions begin with, and takes those that they end with; if the process dies, it
//! goes by the words of [`position`]. Read `docs/understand/moves.md` first.
//!
//! Not here: the protocol (`sojourn_proto`), packet input and output (`sojourn_netif`), the threads
//! that turn the pump (`sojourn_library`).
#![allow(
    unsafe_code,
    reason = "what is sent lies in the program's ring, which only this process writes"
)]

pub mod aggregate;
pub mod ancillary;
pub mod bulk;
mod carried;
mod counts;
mod datagrams;
#[cfg(test)]
mod datagrams_tests;
mod driven;
mod early;
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
mod room;
mod round;
#[cfg(test)]
mod round_tests;
pub mod sealed;
mod session_number;
pub mod tcp_info;
pub mod timing;

pub use aggregate::Measurement;
pub use carried::options::EngineState;
pub use carried::{Carried, unread, unsent};
pub use counts::Counts;
pub use datagrams::{Datagrams, Sent, Source, Waiting};
pub use in_transit::InTransit;
pub use link_hop::{LinkAddresses, LinkHop, LinkId};
pub use placement::Placement;
pub use pump::{Pump, now};
pub use room::has_room;
pub use session_number::SessionNumber;
