//! Packet interfaces: how frames come from a network interface into this address space and go back to it.
//!
//! One trait, several implementations (packet sockets, AF_XDP, a simulated link) and wrappers (faults, tracing, pcapng). Nothing here
//! knows connections: a frame is bytes with an offload header. Formats are `sojourn-wire`'s. Read [ARCHITECTURE.md](../../../ARCHITECTURE.md) first.
