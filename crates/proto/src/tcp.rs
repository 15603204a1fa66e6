//! A TCP connection from ESTABLISHED on (RFC 9293), without I/O and without a clock.
//!
//! A [`Connection`] is made by importing a session record and ends by exporting one. Not here:
//! handshakes and listening (every session is born in the kernel), routes, sockets, readiness.
//!
//! # How to embed it
//! 1. [`Connection::on_segment`] for each segment that arrives for the connection. The returned
//!    [`Disposition`] says whether the segment was accepted, and if not, why.
//! 2. [`Connection::poll_transmit`] until it returns `None`. Each [`Transmit`] is one frame, which
//!    the embedder's interface cuts into segments.
//! 3. Call [`Connection::on_timeout`] at [`Connection::next_timeout`], which step 2 may have
//!    changed, then step 2 again.
//! 4. [`Connection::send`], [`Connection::recv`], `shutdown` and setters at any time, each followed
//!    by step 2.
//!
//! Time is an argument and must never go back. All memory is allocated at import.
//!
//! # Theory of operation
//! The stream of each direction is counted in positions ([`crate::position`]) that do not wrap.
//! `snd.una <= snd.nxt <= snd.end (+ 1 for a FIN)`; the send ring holds `[snd.una, snd.end)`. The
//! receive ring holds `[rcv.read, rcv.nxt)` in order and, beyond gaps, the ranges that the
//! assembler lists, up to the window's edge. `recovery` decides which bytes of `[una, nxt)` are
//! lost and how many may be sent; this module knows the peer's window, Nagle's rule and probes, and
//! builds segments.
//!
//! Files: `connection` (the structure), `program` (the program's calls), `import` and `export`,
//! `input` (arriving segments; `input_ack`, `input_data`), `output` (the choice of segments;
//! `segment` builds them), `timeouts`, and parts without knowledge of a connection: `window`,
//! `acks`, `timestamps`.

mod acks;
mod connection;
mod disposition;
mod export;
mod import;
mod info;
mod input;
mod input_ack;
mod input_data;
mod output;
mod program;
mod segment;
mod settings;
mod timeouts;
mod timers;
mod timestamps;
mod window;

pub use connection::{Connection, Limits, ReceiveEnd};
pub use disposition::{Disposition, Tally};
pub use import::ImportError;
pub use info::TcpInfo;
pub use input::{Arrival, LentSegment};
pub use segment::Transmit;
