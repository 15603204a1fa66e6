//! Feeds arbitrary bytes as a netlink answer of the connection tracking to
//! `sojourn_carrier::fuzz::conntrack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_carrier::fuzz::conntrack(data));
