//! The packet filter: directs each session's packets to its program, and checks the packets that a
//! program sends.
//!
//! The rules are eBPF programs (`bpf/filter.bpf.c`), loaded and attached from here, and the same
//! rules are in Rust for tests. [`Unfiltered`] has the programs for what comes past the filter.
//! Nothing here moves a session or reads a packet on the data path. Formats are `sojourn-wire`'s.
//! Read
//! [docs/understand/packet-path.md](../../../docs/understand/packet-path.md) first, then:
//!
//! * [`rule`]: the filter's data of a session; [`oracle`]: its decisions about a frame; [`reason`]:
//!   its counters;
//! * [`Filter`]: an interface's filter. `add_owner` gives a program a packet socket, `open_port`
//!   gives it a port, `add_flow` gives it a session; [`list()`] returns the attached programs,
//!   [`away()`] the sessions that are away, and [`features`] probes the kernel;
//! * inside: `loader` (programs and maps), `hook` (where they are attached), `group` and `owned`
//!   (packet sockets), `owner`, `owners`, `port`, `netlink`, `sys`.
//!
//! # When the server dies
//! The link on the interface, the maps and the sink are held by descriptors. So when the server
//! dies the interface is at once as before, and the kernel answers the packets of sessions that are
//! away with resets. To prevent that, a separate process, the [`keeper`], holds the descriptors
//! until the next server takes them over. The server updates the keeper after every change of
//! [`Filter::holdings`], which names the descriptors; [`Filter::adopt`] takes them.
//!
//! Ports need no keeper: their guards are attached to their interfaces, and the interfaces end with
//! the programs that use them.

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
mod holding_numbers;
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
mod unfiltered;

pub use adopt::{Holding, holding_of, remove_ports};
pub use away::{AwaySession, away};
pub use error::{AttachError, Failed, FlowError, OwnerError};
pub use filter::{Filter, Flow, Options, XdpMode, release_rule};
pub use group::xdp_socket;
pub use hook::Method;
pub use list::{Attached, ObjectKind, list};
pub use loader::PACKAGE;
pub use owners::{NewOwner, Removed};
pub use port::Port;
pub use reason::{Counts, Reason};
pub use rule::{Key, KeyError, OwnerId, Rule, Target};
pub use unfiltered::{Arrival, Unfiltered, attach_program, detach_program};
