//! Stubs of this crate's own interfaces.

/// `idl/corners.idl`: what the examples do not combine.
pub mod corners {
    include!(concat!(env!("OUT_DIR"), "/corners.rs"));
}

/// `idl/waits.idl`: operations that say how their calls wait.
pub mod waits {
    include!(concat!(env!("OUT_DIR"), "/waits.rs"));
}
