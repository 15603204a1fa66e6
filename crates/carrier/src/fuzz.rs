//! Entry point for fuzzing: arbitrary bytes as the kernel's answers about tracked connections.
//!
//! These properties must hold: no panic, and an end. Debug and fuzzing builds only; not a part of
//! the interface of this crate. Used by `tests/targets` and
//! `fuzz/fuzz_targets/carrier_conntrack.rs`. Not here: routes and neighbours, which a library
//! parses (`netlink`).

use crate::conntrack::{Answer, read, status};

/// Takes the bytes for an answer of the connection tracking.
pub fn conntrack(bytes: &[u8]) {
    if let Some(Answer { result: Ok(attributes), .. }) = read(bytes) {
        let _ = status(attributes);
    }
    let _ = status(bytes);
}
