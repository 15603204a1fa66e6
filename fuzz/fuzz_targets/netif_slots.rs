//! Feeds arbitrary bytes as a mapped receive ring to `sojourn_netif::fuzz::slots`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_netif::fuzz::slots(data));
