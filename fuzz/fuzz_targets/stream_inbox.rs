//! Bytes as what peers write into an inbox, see `sojourn_stream::fuzz::inbox`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_stream::fuzz::inbox(data));
