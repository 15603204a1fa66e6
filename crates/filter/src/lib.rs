//! The packet filter: which session's packets go to which program, and what a program may send.
//!
//! The rules are eBPF programs (`bpf/`), loaded and attached from here, and the same rules in Rust to test them against. Nothing here
//! moves a session or reads a packet on the data path. Formats are `sojourn-wire`'s. Read [ARCHITECTURE.md](../../../ARCHITECTURE.md) first.
