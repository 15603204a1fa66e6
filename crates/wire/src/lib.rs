//! The formats of packets: views over bytes that were checked once, and values that write themselves into bytes.
//!
//! Nothing here keeps state, allocates, does I/O or knows what a packet means to a connection: that is `sojourn-proto`. Names and
//! numbers are the RFCs'; each file names its own. Read [ARCHITECTURE.md](../../../ARCHITECTURE.md) first.

#![no_std]
#![forbid(unsafe_code)]
