//! Control interface between the protocol library in a program and the session server (generated
//! from `idl/session.idl`), the protocol server's interface, the texts of reasons, the
//! configuration, and the server's address.
//!
//! Not here: the implementation of either side. Read `docs/understand/streams.md` first.

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::should_implement_trait,
    reason = "generated from idl/session.idl"
)]
mod stubs;
pub use stubs::*;

pub mod config;
pub mod identity;
pub mod notice;
pub mod pages;
pub mod place;
pub mod protocol;
pub mod reason;
pub mod trust;
pub mod unmapped;

pub use config::{Config, ConfigError};
pub use identity::{
    DelegationToken, InboxNumber, InboxSlot, Inode, LocalNumber, ProcessId, StreamNumber,
};
