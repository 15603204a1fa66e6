//! Feeds arbitrary bytes as descriptors of an AF_XDP ring to `sojourn_netif::fuzz::descriptors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_netif::fuzz::descriptors(data));
