//! Feeds arbitrary bytes as messages of `idl/udp.idl` to the server in
//! `sojourn_udp::fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sojourn_udp::fuzz::messages(data);
});
