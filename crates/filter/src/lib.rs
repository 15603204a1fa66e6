//! The packet filter: which session's packets go to which program, and what a program may send.
//!
//! The rules are eBPF programs (`bpf/filter.bpf.c`), loaded and attached from here, and the same
//! rules in Rust to test them against. Nothing here moves a session or reads a packet on the data
//! path. Formats are `sojourn-wire`'s. Read
//! [docs/understand/packet-path.md](../../../docs/understand/packet-path.md) first, then:
//!
//! * [`rule`]: what the filter knows of a session; [`oracle`]: what it does with a frame;
//!   [`reason`]: what it counts;
//! * [`Filter`]: an interface's filter. `add_owner` gives a program a packet socket, `open_port`
//!   gives it a port, `add_flow` gives it a session; [`list()`] tells what is there, [`away()`]
//!   which sessions are, [`features`] what the kernel has for all this;
//! * inside: `loader` (programs and maps), `hook` (where they are attached), `group` and `owned`
//!   (packet sockets), `owner`, `owners`, `port`, `netlink`, `sys`.
//!
//! # When the server dies
//! The link on the interface, the maps and the sink are held by descriptors. So when the server
//! dies the interface is at once as it was, and the kernel answers the packets of sessions that are
//! away: with resets. To go on, a process that does nothing else holds the descriptors until the
//! next server takes them over: [`keeper`]. The server tells it what to hold after every change of
//! [`Filter::holdings`], which names them; [`Filter::adopt`] takes them.
//!
//! Ports need neither: their guards hang on their interfaces, and the interfaces end with the
//! programs that use them.

#[cfg(any(test, debug_assertions))]
#[doc(hidden)]
pub mod probe;
#[cfg(any(test, debug_assertions))]
#[doc(hidden)]
pub mod samples;

mod adopt;
mod away;
mod error;
pub mod features;
mod filter;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod group;
mod hook;
pub mod keeper;
mod list;
mod loader;
pub mod netlink;
pub mod oracle;
mod owned;
mod owner;
mod owners;
mod port;
pub mod reason;
pub mod rule;
mod sys;

pub use adopt::{holding_of, remove_ports};
pub use away::{Away, away};
pub use error::{AttachError, Failed, FlowError, OwnerError};
pub use filter::{Filter, Options, XdpMode};
pub use hook::Method;
pub use list::{Attached, What, list};
pub use loader::PACKAGE;
pub use owners::Removed;
pub use port::Port;
pub use reason::{Counts, Reason};
pub use rule::{Key, KeyError, OwnerId, Rule, Target};
