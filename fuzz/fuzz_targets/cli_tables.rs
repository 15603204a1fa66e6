//! Bytes as what `/proc` tells of processes and sockets, see
//! `sojourn_cli::fuzz::tables`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sojourn_cli::fuzz::tables(data));
