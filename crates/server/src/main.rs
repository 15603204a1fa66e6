//! `sojournd`, the session server.
fn main() {}
