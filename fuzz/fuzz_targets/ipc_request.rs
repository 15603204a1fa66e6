//! Bytes as the peer's half of a connection, see `sojourn_ipc::fuzz::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_ipc::fuzz::request(data));
