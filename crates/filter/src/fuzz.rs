//! Entry point for fuzzing: arbitrary bytes as what the kernel tells of interfaces.
//!
//! What must hold: no panic, and an end. Debug and fuzzing builds only; not a part of the interface
//! of this crate. Used by `tests/targets` and `fuzz/fuzz_targets/filter_netlink.rs`.

use crate::netlink::{attributes, interface, message, status};

/// The bytes are a datagram of a netlink socket.
pub fn netlink(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((_, body, after)) = message(rest) {
        assert!(after.len() < rest.len(), "it goes on");
        let _ = status(body);
        let _ = interface(body);
        attributes(body, |_, value| assert!(value.len() < body.len()));
        rest = after;
    }
}
