//! The control interface between the protocol library of a program and the session server, generated
//! from `idl/session.idl`, and the configuration that both read. Not here: how either side works.
//! Read `docs/streams.md` first.

#[allow(missing_docs, unreachable_pub, reason = "generated from idl/session.idl")]
mod stubs {
    include!(concat!(env!("OUT_DIR"), "/session.rs"));
}
pub use stubs::*;
