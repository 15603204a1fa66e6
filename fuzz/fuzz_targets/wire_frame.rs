//! Feeds arbitrary bytes as a frame from an interface to `sojourn_wire::fuzz::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_wire::fuzz::frame(data));
