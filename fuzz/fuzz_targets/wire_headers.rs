//! Bytes as every header that is no frame's, see `sojourn_wire::fuzz::headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_wire::fuzz::headers(data));
