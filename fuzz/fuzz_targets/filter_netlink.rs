//! Feeds arbitrary bytes as a netlink datagram about interfaces to `sojourn_filter::fuzz::netlink`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_filter::fuzz::netlink(data));
