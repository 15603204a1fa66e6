//! Bytes as what the kernel tells of packet filters and policies, see
//! `sojourn_firewall::fuzz::rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_firewall::fuzz::rules(data));
