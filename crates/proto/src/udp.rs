//! A UDP socket's session (RFC 768): datagrams that wait to be read, and the check of datagrams
//! that are sent past the kernel.
//!
//! Sending keeps no bytes: [`Socket::prepare`] returns the headers' values, and the embedder sends
//! the payload from the program's memory. A datagram that the fast path cannot send is not an
//! error: [`KernelPath`] names the reason, and the datagram goes through the kernel's socket, which
//! stays usable. Not here: ICMP errors (they appear on the kernel's socket), fragments, multicast.

mod queue;
mod send;
mod socket;

pub use queue::{Envelope, Received};
pub use send::{KernelPath, Outgoing};
pub use socket::{Disposition, ImportError, Limits, Socket, Tally};

#[cfg(test)]
mod tests;
