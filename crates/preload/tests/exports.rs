//! What the library gives to the programs that it is loaded into: the C library's functions, under their names, and
//! nothing of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::HashSet;
use std::process::Command;

/// The dynamic symbols of a file: those that it has (`--defined-only`), or wants.
fn symbols(file: &str, which: &str) -> Option<Vec<String>> {
    let output = Command::new("nm").args(["-D", which, file]).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| Some(line.split_whitespace().last()?.split('@').next()?.to_owned());
    Some(text.lines().filter_map(name).collect())
}

fn libc() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line =
        maps.lines().find(|line| line.contains("/libc.so") || line.contains("/libc-")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn only_functions_of_the_c_library_are_exported() {
    let Some(ours) = symbols(common::library().to_str().unwrap(), "--defined-only") else {
        eprintln!("skipped: no nm");
        return;
    };
    assert!(ours.iter().any(|name| name == "read"), "{ours:?}");
    // Functions of later C libraries than the one here are none of theirs either, but have their names.
    let theirs: HashSet<String> = symbols(&libc(), "--defined-only").unwrap().into_iter().collect();
    let foreign: Vec<_> = ours.iter().filter(|name| !theirs.contains(*name)).collect();
    let is_later = |name: &str| name.starts_with("__isoc23_") || name == "epoll_pwait2";
    let own: Vec<_> = foreign.into_iter().filter(|name| !is_later(name)).collect();
    assert!(own.is_empty(), "exported, but not of the C library: {own:?}");
}
