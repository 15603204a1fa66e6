//! Feeds arbitrary bytes as an IDL file, and those behind the first zero byte as an ACF, to
//! `sojourn_idl::fuzz_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_idl::fuzz_parse(data));
