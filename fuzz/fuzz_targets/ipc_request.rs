//! Feeds arbitrary bytes as the actions of a server's client to `sojourn_ipc::fuzz::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_ipc::fuzz::request(data));
