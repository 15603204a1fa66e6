//! Packet interfaces: receive frames from a network interface into this address space, and send
//! frames.
//!
//! The crate has one trait, [`Interface`], and its implementations:
//!
//! * [`Message`]: a packet socket, one system call per packet. Uses the least memory, and is the
//!   baseline for comparisons.
//! * [`Ring`]: a packet socket with a mapped receive ring: frames are received without a system
//!   call.
//! * [`Xdp`]: an AF_XDP socket in copy mode, for one queue of an interface.
//! * [`sim`]: a link in memory, with the caller's clock.
//! * [`Fault`], [`Trace`], [`Capture`]: the same trait around another interface: faults, typed
//!   events, pcapng.
//!
//! Not here: connections, the choice of a session's frames (`sojourn-filter`), routes and
//! neighbours. A frame is bytes with an offload header, whose format is `sojourn-wire`'s. Read
//! [ARCHITECTURE.md](../../../ARCHITECTURE.md) first, then `interface`.
//!
//! Two rules hold for memory that the kernel writes: a word that gives a slot's owner is an atomic,
//! and each field of a slot's or a ring's header is loaded once and checked against the mapped size
//! before it is used.
#![allow(unsafe_code, reason = "mapped rings and system calls are what this crate is for")]

mod capture;
mod device;
mod fault;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod interface;
mod map;
mod message;
pub mod packet;
mod partial;
mod pass_on;
pub mod pcapng;
mod random;
mod raw;
mod ring;
pub mod sim;
mod slot;
mod trace;
mod umem;
mod with_xdp;
mod xdp;
mod xdp_ring;
mod xdp_send;

pub use capture::Capture;
pub use device::{Device, DeviceError};
pub use fault::{Fault, FaultCounts, FaultOptions, Rates};
pub use interface::{
    Accept, FRAME_BYTES_MAX, Interface, LinkError, OpenError, Outgoing, Properties, Received,
    Scatter, SendError, Statistics,
};
pub use message::Message;
pub use packet::PacketOptions;
pub use ring::{Ring, RingLayout};
pub use sojourn_wire::frame::LinkType;
pub use sojourn_wire::vnet;
pub use trace::{Direction, Event, HEAD_BYTES, Outcome, Trace};
pub use with_xdp::{WithXdp, XdpSender};
pub use xdp::{Xdp, XdpOptions};
