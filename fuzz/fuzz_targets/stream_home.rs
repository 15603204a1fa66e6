//! Bytes as what a peer writes while a side goes home, see `sojourn_stream::fuzz::way_home`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_stream::fuzz::way_home(data));
