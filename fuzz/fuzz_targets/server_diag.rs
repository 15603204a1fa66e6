//! Feeds arbitrary bytes as an answer of `sock_diag` (sock_diag(7)) to
//! `sojourn_server::identity::fuzz_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_server::identity::fuzz_answers(data));
