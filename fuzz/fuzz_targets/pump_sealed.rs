//! Bytes as the files that a program hands to the server, see
//! `sojourn_pump::fuzz::sealed_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_pump::fuzz::sealed_files(data));
