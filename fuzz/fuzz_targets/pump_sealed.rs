//! Feeds arbitrary bytes as the files that a program hands to the server to
//! `sojourn_pump::fuzz::sealed_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_pump::fuzz::sealed_files(data));
