//! Feeds arbitrary bytes as the peer's half of a stream's region to `sojourn_stream::fuzz::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_stream::fuzz::stream(data));
