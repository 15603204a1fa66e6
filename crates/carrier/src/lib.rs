//! Carries TCP sessions to other hosts outside the kernel.
//!
//! A session that is carried has its protocol state here: in a `sojourn_proto` connection between a stream, whose
//! other side is the program's, and a packet interface. Its kernel socket stays connected, but hears nothing any more.
//! This crate is the session's home of the kind `server`; the session server runs it on a thread of its own. Read
//! `docs/moves.md` first.
//!
//! Not here: which packets come here (`sojourn_filter`), how they come (`sojourn_netif`), what TCP is (`sojourn_proto`).

mod carried;
mod carrier;
mod export;
mod import;
mod inboxes;
mod links;
pub mod metastate;
mod moves;
mod netlink;
mod raw;
mod repair;
mod sessions;
mod tuning;

pub use carrier::{Carrier, StartError};
pub use export::{ExportError, export};
pub use import::{ImportError, import};
pub use sessions::{Door, Gate, Sessions, door};
