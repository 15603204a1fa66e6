//! Bytes as events on a TCP connection, see `sojourn_proto::fuzz::segments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_proto::fuzz::segments(data));
