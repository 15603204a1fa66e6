//! Feeds arbitrary bytes as the control data of a message to `sojourn_netif::fuzz::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_netif::fuzz::control(data));
