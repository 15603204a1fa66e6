//! Answers the question: could the host's packet filters (nftables, iptables, tc), its IPsec
//! policies, its routing rules, the eBPF programs of control groups or security modules affect a
//! session's packets?
//!
//! A session that is away sends and receives past the kernel's hooks. So the carrier asks before it
//! delegates a session, and again when rules change; an answer names the hook. A rule that this
//! crate does not understand counts as one that could affect the packets. Bytes are parsed without
//! I/O (`ruleset`, `sets`, `rule`, `policies`, `routing`, `tables`, `entry`, `xtables`); `kernel`,
//! `dumps`, `refusals`, `cgroups`, `traffic` and `linked` read them. Not here: the decision about
//! the session.
//!
//! Read `session`, then `chains` and `ruleset`.

mod attributes;
mod bpf;
mod cgroups;
mod chains;
mod dumps;
mod entry;
mod family;
mod folders;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod kernel;
mod linked;
mod modules;
mod netlink;
mod packets;
mod policies;
mod refusals;
mod registers;
mod routing;
mod rule;
mod ruleset;
#[cfg(test)]
mod samples;
mod session;
mod sets;
mod tables;
mod traffic;
mod verdict;
mod xtables;

pub use kernel::{Firewall, RESURVEY_US};
pub use session::{Family, Interface, Session};
