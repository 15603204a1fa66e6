//! Feeds arbitrary bytes as the events of a TCP connection to `sojourn_proto::fuzz::segments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_proto::fuzz::segments(data));
