//! The formats of packets: views over bytes that were checked once, and values that write
//! themselves into bytes.
//!
//! Nothing here keeps state, allocates, does I/O or interprets a packet for a connection, which
//! `sojourn-proto` does. Names and numbers are the RFCs'; each file names its own. Read
//! [ARCHITECTURE.md](../../../ARCHITECTURE.md) first, then:
//!
//! * [`frame`]: from the link header to the payload in one pass, and back. This is what the data
//!   path uses.
//! * [`tcp`], [`udp`], [`ipv4`], [`ipv6`], [`ethernet`], [`arp`], [`icmp`]: one format each. A
//!   *view* (`Segment`, `Datagram`, `Packet`) borrows bytes and cannot be made of bytes that are
//!   too short or whose lengths contradict each other, so reading it cannot panic. A *value*
//!   (`Header`) is plain data with `emit`; the emitted bytes parse to the same value.
//! * [`checksum`]: the Internet checksum, whole, in parts, partial and incremental; [`vnet`]: the
//!   offload header, which describes an interface's work on checksums and segments.
//! * [`netlink`]: not a packet's format but the kernel's, for answers about interfaces, sockets and
//!   rules: messages and their attributes; [`SocketCookie`], by which they name a socket.
//!
//! Bytes from the network may be damaged or hostile: the result is a [`Malformed`], never a panic.

#![no_std]
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod ethernet;
mod flow;
pub mod frame;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
mod malformed;
pub mod netlink;
mod octets;
mod socket_cookie;
pub mod tcp;
pub mod udp;
pub mod vnet;

pub use ethernet::MacAddress;
pub use flow::{FlowKey, Protocol};
pub use ip::Ecn;
pub use malformed::{Malformed, NoRoom};
pub use socket_cookie::SocketCookie;
pub use tcp::SeqNum;
