//! The protocol server: TCP and UDP sessions whose engine runs in a process of the session
//! server's, and the client of that process.
//!
//! `sojourn-protocol` is a program under the protocol library (`sojourn_library`), which it embeds:
//! programs hand it their sockets, and it moves their sessions out of the kernel and home as the
//! library does for any program. Programs call it through the stubs of `idl/protocol.idl`
//! ([`Client`]). Read `docs/understand/protocol-server.md` first, then `server`, `session`,
//! `queue`, `calls`.
//!
//! Not here: the engine and its driver (`sojourn_proto`, `sojourn_pump`, `sojourn_library`), the
//! start of the process (`sojourn_server`).

#[cfg(feature = "server")]
mod bells;
#[cfg(feature = "server")]
mod buffer;
#[cfg(feature = "server")]
mod calls;
mod client;
#[cfg(feature = "server")]
pub mod confine;
#[cfg(feature = "server")]
mod datagrams;
#[cfg(all(feature = "server", any(debug_assertions, fuzzing)))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "server")]
mod groups;
#[cfg(feature = "server")]
mod options;
#[cfg(feature = "server")]
pub mod process;
#[cfg(feature = "server")]
mod queue;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod session;
#[cfg(feature = "server")]
mod slow;
#[cfg(feature = "server")]
mod table;
mod token;
#[cfg(feature = "server")]
mod watcher;

pub use client::{Client, Datagram, Error, OpenedSession, Session, SessionEvents};
#[cfg(feature = "server")]
pub use server::Protocol;
pub use sojourn_ipc::{Address, Deadline, Wait};
pub use sojourn_options::OptionName;
pub use sojourn_session::protocol::SUFFIX;
pub use sojourn_session::protocol::client::{
    DATA_MAX, FAILED, HUNG_UP, PEER_DONE, READABLE, WRITABLE,
};
#[cfg(feature = "server")]
pub use sojourn_session::protocol::server::ProtocolService;
pub use token::Token;
