//! Feeds arbitrary bytes as messages of `idl/protocol.idl` to the server in
//! `sojourn_protocol::fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sojourn_protocol::fuzz::messages(data);
});
