//! Feeds arbitrary bytes as the actions of a client's server to `sojourn_ipc::fuzz::reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_ipc::fuzz::reply(data));
