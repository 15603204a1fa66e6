//! What travels beside bytes, and what surrounds a connection. Each test runs with the server in
//! this process and in another, where that makes sense.
//!
//! Not here: calls themselves (`calls`), deaths (`death`), peers that break the rules (`hostile`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

macro_rules! in_both_homes {
    ($($test:ident)*) => {
        mod within {
            $(#[test] fn $test() { super::$test(super::Home::Within); })*
        }
        mod across {
            $(#[test] fn $test() { super::$test(super::Home::Across); })*
        }
    };
}

mod clients;
mod descriptors;
mod endpoints;
mod memory;

#[test]
fn child_entry() {
    common::child::entry(&[
        ("few-descriptors", descriptors::few_descriptors),
        ("offered", endpoints::offered),
        ("greedy", clients::greedy),
        ("secluded", clients::secluded),
        ("bind-ignoring-children", endpoints::bind_ignoring_children),
    ]);
}
