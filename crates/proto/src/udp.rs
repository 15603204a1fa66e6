//! A UDP socket's session (RFC 768): datagrams that wait to be read, and what may be sent past the
//! kernel.
//!
//! Sending keeps nothing: [`Socket::prepare`] says how a payload leaves, and the embedding sends it
//! from where it lies. What the fast path does not do is not an error: [`Detour`] names it, and the
//! datagram goes through the kernel's socket, which stays usable beside. Not here: ICMP errors
//! (they appear on the kernel's socket), fragments, multicast.

mod queue;
mod send;
mod socket;

pub use queue::{Envelope, Received};
pub use send::{Detour, Outgoing};
pub use socket::{Disposition, ImportError, Limits, Socket, Tally};

#[cfg(test)]
mod tests;
