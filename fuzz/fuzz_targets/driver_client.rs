//! Feeds arbitrary bytes as the answers of a hostile driver to its client in
//! `sojourn_driver::fuzz::answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sojourn_driver::fuzz::answers(data);
});
