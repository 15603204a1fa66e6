//! Other protocol implementations: clients that take the arguments of `lab-bench` and measure as it
//! does, over a packet socket.
//!
//! gVisor's is a program in Go (`crates/bench/netstack`). Each client shares an interface with its
//! host's kernel, and has an address and a link address of its own.

mod packet;
pub(super) mod smoltcp;
