//! Entry point for fuzzing: arbitrary bytes as the kernel's messages about interfaces.
//!
//! The invariants: no panic, and termination. Debug and fuzzing builds only; not a part of the
//! interface of this crate. Used by `tests/targets` and `fuzz/fuzz_targets/filter_netlink.rs`.

use crate::netlink::{Message, attributes, interface, message, status};

/// Reads the bytes as a datagram of a netlink socket.
pub fn netlink(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(Message { body, rest: after, .. }) = message(rest) {
        assert!(after.len() < rest.len(), "it goes on");
        let _ = status(body);
        let _ = interface(body);
        attributes(body, |_, value| assert!(value.len() < body.len()));
        rest = after;
    }
}
