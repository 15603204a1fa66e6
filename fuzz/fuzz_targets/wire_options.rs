//! Feeds arbitrary bytes as the options of a TCP header to `sojourn_wire::fuzz::options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_wire::fuzz::options(data));
