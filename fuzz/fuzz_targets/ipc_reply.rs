//! Bytes as the peer's half of a connection, see `sojourn_ipc::fuzz::reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_ipc::fuzz::reply(data));
