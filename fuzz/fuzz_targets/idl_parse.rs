//! Arbitrary bytes as IDL file and, behind the first zero byte, ACF.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_idl::fuzz_parse(data));
