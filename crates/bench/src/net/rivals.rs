//! Other protocol implementations: clients that take `lab-bench`'s words and measure as it does,
//! over a packet socket.
//!
//! gVisor's is a program in Go (`crates/bench/netstack`). Each sits on the client's interface,
//! beside its host's kernel, with an address and a link address of its own.

mod packet;
pub(super) mod smoltcp;
