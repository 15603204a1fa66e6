//! Feeds arbitrary bytes as the writes of peers into an inbox to `sojourn_stream::fuzz::inbox`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_stream::fuzz::inbox(data));
