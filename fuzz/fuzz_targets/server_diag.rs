//! Bytes as an answer of `sock_diag`, see
//! `sojourn_server::identity::fuzz_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_server::identity::fuzz_answers(data));
