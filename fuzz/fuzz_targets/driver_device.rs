//! Feeds arbitrary bytes as messages of `idl/device.idl` to the server in
//! `sojourn_driver::fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sojourn_driver::fuzz::messages(data);
});
