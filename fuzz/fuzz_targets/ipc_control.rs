//! Feeds arbitrary bytes as packets on the socket of a connection to `sojourn_ipc::fuzz::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_ipc::fuzz::control(data));
