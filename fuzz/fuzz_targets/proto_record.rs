//! Feeds arbitrary bytes as the body of a session record to `sojourn_proto::fuzz::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_proto::fuzz::record(data));
