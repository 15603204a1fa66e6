//! Feeds arbitrary bytes as the writes of a peer during a recall to
//! `sojourn_stream::fuzz::way_home`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_stream::fuzz::way_home(data));
