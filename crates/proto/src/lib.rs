//! TCP and UDP without I/O and without a clock: a connection is made by importing a session record
//! and ends by exporting one.
//!
//! Time, packets and memory come in as arguments; segments to send go out as values. Nothing here
//! opens a socket, knows an interface or reads a clock. `sojourn-wire` has the packet formats. Read
//! [ARCHITECTURE.md](../../../ARCHITECTURE.md) first.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cc;
pub mod frto;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod pacing;
pub mod position;
pub mod prr;
pub mod rack;
pub mod reassembly;
pub mod record;
mod record_codec;
mod record_error;
mod record_tcp;
mod record_tcp_options;
mod record_udp;
pub mod recovery;
mod ring;
pub mod rtt;
pub mod scoreboard;
pub mod tcp;
pub mod time;
pub mod tlp;
pub mod udp;
