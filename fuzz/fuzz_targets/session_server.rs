//! Feeds arbitrary bytes as messages of `idl/session.idl` to the session server in
//! `sojourn_server::fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sojourn_server::fuzz::messages(data);
});
