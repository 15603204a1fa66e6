//! `sojourn`.
fn main() {}
