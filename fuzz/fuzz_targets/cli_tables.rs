//! Feeds arbitrary bytes as files of `/proc` on processes and sockets to
//! `sojourn_cli::fuzz::tables`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_cli::fuzz::tables(data));
