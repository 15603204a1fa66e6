//! Generated Rust in which everything is called like something else: every word of
//! `crates/idl/tests/names/samples.rs` in every position of the language. No product, and no test
//! that runs: `cargo clippy` on this crate is the test. Generated C of the same interfaces is
//! compiled by `crates/idl/tests/names.rs`.

#![allow(missing_docs, reason = "generated")]

include!(concat!(env!("OUT_DIR"), "/names.rs"));
