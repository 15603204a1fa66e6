//! Whether the host's packet filters (nftables, iptables) or its IPsec policies could say something
//! about a session's packets.
//!
//! A session that is away sends and receives past the kernel's hooks. So the carrier asks here
//! before it takes one out, and again when rules change: an answer names the hook. Whatever is not
//! understood counts as a hook that could say something. Bytes are parsed without I/O (`ruleset`,
//! `rule`, `policies`, `tables`); `kernel` reads them. Not here: what becomes of the session.
//!
//! Read `session`, then `ruleset`.

mod attributes;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod kernel;
mod policies;
mod registers;
mod rule;
mod ruleset;
#[cfg(test)]
mod samples;
mod session;
mod tables;

pub use kernel::{Firewall, RESURVEY_US};
pub use session::{Family, Interface, Session};
