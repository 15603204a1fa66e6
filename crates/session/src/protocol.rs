//! The interface of the protocol server (generated from `idl/protocol.idl`), and its address.
//!
//! Not here: the server, and the client for programs that call it themselves (`sojourn_protocol`);
//! the client in the protocol library (`sojourn_library`). Read
//! `docs/understand/protocol-server.md` first.

pub mod address;
pub mod answer;
pub mod receiving;

/// The suffix of a protocol server's address, behind that of its session server.
pub const SUFFIX: &str = ".protocol";

/// The server's side: waiting calls are answered later.
#[allow(missing_docs, unreachable_pub, reason = "generated from idl/protocol.idl")]
pub mod server {
    include!(concat!(env!("OUT_DIR"), "/server/protocol.rs"));
}

/// The client's side: data goes into the caller's own buffer.
#[allow(missing_docs, unreachable_pub, reason = "generated from idl/protocol.idl")]
pub mod client {
    include!(concat!(env!("OUT_DIR"), "/client/protocol.rs"));
}
