//! Entry point for fuzzing: arbitrary bytes as what the kernel tells of tracked connections.
//!
//! What must hold: no panic, and an end. Debug and fuzzing builds only; not a part of the interface
//! of this crate. Used by `tests/targets` and `fuzz/fuzz_targets/carrier_conntrack.rs`. Not here:
//! routes and neighbours, which a library of others reads (`netlink`).

use crate::conntrack::{read, status};

/// The bytes are an answer of the connection tracking.
pub fn conntrack(bytes: &[u8]) {
    if let Some((_, Ok(attributes))) = read(bytes) {
        let _ = status(attributes);
    }
    let _ = status(bytes);
}
