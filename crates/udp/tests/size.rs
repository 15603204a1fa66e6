//! Tests that server and clients together stay below 1,100 lines, as they are meant to be read
//! whole.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[test]
fn server_and_clients_have_fewer_than_eleven_hundred_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_test = |path: &str| path.ends_with("_tests.rs") || path.ends_with("/fuzz.rs");
    let shipped = paths.filter(|path| !is_test(&path.to_string_lossy()));
    // Comments count, as they are read too; empty lines do not.
    let lines = |text: String| text.lines().filter(|line| !line.trim().is_empty()).count();
    let count: usize = shipped.map(|path| lines(std::fs::read_to_string(path).unwrap())).sum();
    assert!((500..1100).contains(&count), "{count}");
}
