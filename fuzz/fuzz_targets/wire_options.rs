//! Bytes as a TCP option area, see `sojourn_wire::fuzz::options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_wire::fuzz::options(data));
