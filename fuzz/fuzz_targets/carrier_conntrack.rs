//! Bytes as an answer of the connection tracking, see
//! `sojourn_carrier::fuzz::conntrack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_carrier::fuzz::conntrack(data));
