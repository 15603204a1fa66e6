//! The links between the library and the programs that load it: few symbols, none of them the
//! library's own, for old and new C libraries.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

/// Returns the lines that `readelf` prints for the library.
fn readelf(options: &str) -> Vec<String> {
    let output =
        Command::new("readelf").args(["--wide", options]).arg(common::library()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns names of the dynamic symbol table, with their versions: those that the library defines,
/// or those that it refers to.
fn names(is_had: bool) -> Vec<String> {
    let is_meant = |words: &Vec<&str>| words.len() >= 8 && (words[6] != "UND") == is_had;
    let lines = readelf("--dyn-syms");
    let words = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let symbols = words.filter(|words| words.first().is_some_and(|first| first.ends_with(':')));
    symbols.filter(is_meant).map(|words| words[7].to_owned()).collect()
}

fn bare(name: &str) -> String {
    name.split('@').next().unwrap().to_owned()
}

#[test]
fn no_name_of_its_own_can_be_taken_from_it() {
    let own: HashSet<String> = names(true).iter().map(|name| bare(name)).collect();
    assert!(own.contains("read") && own.contains("sigaction"), "{own:?}");
    let bound: Vec<String> = readelf("--relocs")
        .iter()
        .filter_map(|line| line.split_whitespace().nth(4).map(bare))
        .filter(|name| own.contains(name))
        .collect();
    assert!(bound.is_empty(), "bound by the loader to the first of that name: {bound:?}");
}

/// A symbol that is bound at start costs every program time, and may be bound to a function of the
/// program's own.
#[test]
fn few_names_are_bound_at_start() {
    /// Functions that compilers call, functions for memory, and three that no program defines.
    const KNOWN: &str = "__errno_location bcmp calloc environ free getauxval malloc memcmp memcpy memmove memset posix_memalign \
        realloc strlen";
    let known: HashSet<&str> = KNOWN.split_whitespace().collect();
    let wanted: Vec<_> = names(false).iter().map(|name| bare(name)).collect();
    let more: Vec<_> = wanted.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(more.is_empty(), "bound at start: {more:?}");
}

#[test]
fn every_c_library_since_2_28_can_load_it() {
    let lines = readelf("--version-info");
    let versions: Vec<(u32, u32)> = lines
        .iter()
        .filter_map(|line| line.split("Name: GLIBC_").nth(1))
        .map(|rest| rest.split_whitespace().next().unwrap().to_owned())
        .map(|version| {
            let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(u32::MAX));
            (numbers.next().unwrap(), numbers.next().unwrap_or(0))
        })
        .collect();
    assert!(!versions.is_empty());
    let newer: Vec<_> = versions.iter().filter(|version| **version > (2, 28)).collect();
    assert!(newer.is_empty(), "of later C libraries: {newer:?}");
    // Loaders know this format of relocations only since glibc 2.36.
    assert!(readelf("--dynamic").iter().all(|line| !line.contains("RELR")));
}

#[test]
fn it_needs_the_c_library_alone() {
    let needed: Vec<String> =
        readelf("--dynamic").into_iter().filter(|line| line.contains("(NEEDED)")).collect();
    let is_known = |line: &String| line.contains("libc.so.6");
    assert!(!needed.is_empty() && needed.iter().all(is_known), "{needed:?}");
    let names: Vec<String> =
        readelf("--dynamic").into_iter().filter(|line| line.contains("(SONAME)")).collect();
    assert!(names.is_empty(), "the loader would take it for another: {names:?}");
}

/// A program defines functions of these names itself, which call the C library in ways of their
/// own.
#[test]
fn a_program_with_functions_of_its_own() {
    for names in ["SIGNALS", "NUMBERS", "CLOCK", "MEMORY"] {
        let define = format!("-D{names}");
        let options = [define.as_str(), "-rdynamic"];
        let program = common::build_with("own", &format!("own-{names}"), &options);
        common::same_command(|| Command::new(&program));
    }
}

/// Programs of another C library run as without the library, which cannot work there.
#[test]
fn a_program_of_another_c_library() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/other.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other-musl");
    let compiled = Command::new("musl-gcc").arg("-O1").arg("-o").args([&program, &source]).status();
    let Ok(compiled) = compiled else {
        // Only on Debian and its relatives, where the package is known, is its absence an error.
        assert!(!Path::new("/etc/debian_version").exists(), "no musl-gcc: package musl-tools");
        return;
    };
    assert!(compiled.success());
    common::same_command(|| Command::new(&program));
}
