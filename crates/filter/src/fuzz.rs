//! Entry point for fuzzing: arbitrary bytes as the kernel's messages about interfaces.
//!
//! The invariants: no panic, and termination. Debug and fuzzing builds only; not a part of the
//! interface of this crate. Used by `tests/targets` and `fuzz/fuzz_targets/filter_netlink.rs`.

use crate::netlink::{interface, status};
use sojourn_wire::netlink::{attributes, messages};

/// Reads the bytes as a datagram of a netlink socket.
pub fn netlink(bytes: &[u8]) {
    for message in messages(bytes) {
        let _ = status(message.body);
        let _ = interface(message.body);
        assert!(attributes(message.body).all(|one| one.value.len() < message.body.len()));
    }
}
