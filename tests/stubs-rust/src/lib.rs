//! Generated Rust of every example interface. No product: `cargo test` and `cargo clippy` on this
//! crate are the tests.

/// `idl/examples/calc.idl`.
pub mod calc {
    include!(concat!(env!("OUT_DIR"), "/calc.rs"));
}
/// `idl/examples/everything.idl`.
pub mod everything {
    include!(concat!(env!("OUT_DIR"), "/everything.rs"));
}
/// `idl/examples/files.idl`.
pub mod files {
    include!(concat!(env!("OUT_DIR"), "/files.rs"));
}
/// `idl/examples/paper.idl`.
pub mod paper {
    include!(concat!(env!("OUT_DIR"), "/paper.rs"));
}
/// `crates/idl/tests/c/com.idl`: a file of COM.
pub mod com {
    include!(concat!(env!("OUT_DIR"), "/com.rs"));
}
/// `idl/local.idl` of this folder: what an ACF can change.
pub mod local {
    include!(concat!(env!("OUT_DIR"), "/local.rs"));
}

pub mod convert;
