//! The control interface between the protocol library of a program and the session server,
//! generated from `idl/session.idl`; reasons in words; the configuration that both read; where a
//! server is.
//!
//! Not here: how either side works. Read `docs/understand/streams.md` first.

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::should_implement_trait,
    reason = "generated from idl/session.idl"
)]
mod stubs;
pub use stubs::*;

pub mod config;
pub mod notice;
pub mod pages;
pub mod place;
pub mod reason;

pub use config::{Config, ConfigError};
