//! Bytes as messages of the session server's processes to each other, see
//! `sojourn_server::fuzz_lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_server::fuzz_lines::lines(data));
