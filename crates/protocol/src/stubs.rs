//! The stubs of both sides, as the build script has them generated.

/// The server's side: waiting calls are answered later.
#[cfg(feature = "server")]
pub(crate) mod server {
    include!(concat!(env!("OUT_DIR"), "/server/protocol.rs"));
}

/// The client's side: data goes into the caller's own buffer.
pub(crate) mod client {
    include!(concat!(env!("OUT_DIR"), "/client/protocol.rs"));
}
