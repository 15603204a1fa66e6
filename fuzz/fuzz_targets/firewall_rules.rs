//! Feeds arbitrary bytes as dumps of packet filters and IPsec policies to
//! `sojourn_firewall::fuzz::rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_firewall::fuzz::rules(data));
