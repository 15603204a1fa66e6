//! Entry points for fuzzing: arbitrary bytes as the files that a program hands to the server.
//!
//! These properties must hold: no panic, an end, and no output but segments of the session. Debug
//! and fuzzing builds only; not a part of the interface of this crate. Used by `tests/targets` and
//! `fuzz/fuzz_targets/pump_sealed.rs`.

use crate::{in_transit, sealed};
use sojourn_wire::frame::{self, LinkType};

/// Takes the bytes for a session's record, then for packets in transit of the session that the
/// first of them names.
pub fn sealed_files(bytes: &[u8]) {
    let Ok(file) = sealed::seal([bytes]) else { return };
    if let Ok(record) = sealed::open(&file) {
        let packed = sealed::pack(&record).map(sealed::open);
        assert!(matches!(packed, Ok(Ok(again)) if again == record), "what was read reads the same");
    }
    let first = bytes.get(4..).and_then(|bytes| frame::parse(bytes, LinkType::Raw).ok());
    let Some(flow) = first.map(|frame| frame.key.reversed()) else { return };
    in_transit::each_in(&file, &flow, |packet| {
        let key = frame::parse(packet, LinkType::Raw).map(|frame| frame.key);
        assert_eq!(key, Ok(flow.reversed()), "another session's packet");
    });
}
