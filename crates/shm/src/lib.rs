//! Memory shared with a peer that may be hostile, and the two protocols that run over it.
//!
//! Here are sealed anonymous segments and their mapping ([`Segment`], [`Mapping`]), checked spans
//! and the copies in and out of them ([`Span`], [`copy`]), futexes ([`futex`]), the line of words
//! that carries a message ([`Line`]), the order of messages ([`ring`]), the parking protocol
//! ([`park`]), and the choice between spinning and parking ([`wait`], [`Deadline`]). Not here:
//! messages, sockets, protocols; the code that maps a segment gives its bytes their meaning.
//!
//! Two rules hold everywhere: no Rust reference other than to an atomic ever points into memory
//! that a peer can write, and every offset and length is checked against the *mapped* size before
//! it is used. Read `docs/understand/ipc.md` first, its part on shared memory.
#![allow(unsafe_code, reason = "mapping and copying shared memory is what this crate is for")]

mod line;
pub mod park;
pub mod ring;
mod sync;

pub use line::{LINE_WORDS, Line};
pub use sync::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub mod aside;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod deadline;
#[cfg(not(loom))]
pub mod descriptor;
#[cfg(not(loom))]
pub mod fasync;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod fault;
#[cfg(not(loom))]
pub mod futex;
#[cfg(all(not(loom), any(debug_assertions, fuzzing)))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(not(loom))]
mod held;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
pub mod pidfd;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
pub mod sockopt;
#[cfg(not(loom))]
pub mod wait;

#[cfg(not(loom))]
pub use deadline::Deadline;
#[cfg(not(loom))]
pub use held::{FdNumber, MovableFd};
#[cfg(not(loom))]
pub use mapping::{Access, Mapping, Span};
#[cfg(not(loom))]
pub use segment::{NewSegment, Segment, SegmentError};
