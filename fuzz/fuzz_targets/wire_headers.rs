//! Feeds arbitrary bytes as each header other than a frame's to `sojourn_wire::fuzz::headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_wire::fuzz::headers(data));
