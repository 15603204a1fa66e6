//! Bytes as what the kernel tells of interfaces, see
//! `sojourn_filter::fuzz::netlink`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_filter::fuzz::netlink(data));
