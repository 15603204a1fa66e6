//! The check that every unit test and every example in the documentation is run.
//!
//! A library that has none says so in its Cargo.toml (`test = false`, `doctest = false`), because a
//! test program without tests takes as long to build as another. A test that is written there
//! later would never run, so this check finds it. Files are looked at as text. Not here: tests in
//! `tests/`, each of which is a target of its own.

use crate::columns::sources;
use crate::layers::packages;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Fails with the libraries whose Cargo.toml and files differ.
pub(crate) fn check() -> Result<()> {
    let here = std::env::current_dir()?;
    let files = sources()?;
    let mut found = Vec::new();
    for package in &packages()? {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().context("cargo metadata: a package without a folder")?;
        let folder = folder.strip_prefix(&here).unwrap_or(folder).join("src");
        found.extend(faults_of(package, &written_in(&folder, &files)?));
    }
    if !found.is_empty() {
        bail!("tests that no target runs, or targets without tests:\n{}", found.join("\n"));
    }
    Ok(())
}

/// What the files of a library have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Written {
    tests: bool,
    examples: bool,
    /// Code that a build script writes, which may have tests.
    generated: bool,
}

fn written_in(folder: &Path, files: &[PathBuf]) -> Result<Written> {
    let mut written = Written::default();
    for file in files.iter().filter(|file| file.starts_with(folder)) {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        written.tests |= has_test(&text);
        written.examples |= has_example(&text);
        written.generated |= text.contains("include!(concat!(env!(\"OUT_DIR\")");
    }
    Ok(written)
}

/// Describes how a package's library differs from what its files have. Programs have no such
/// setting here.
fn faults_of(package: &Value, written: &Written) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut found = Vec::new();
    for target in package["targets"].as_array().into_iter().flatten() {
        let is =
            |kind: &str| target["kind"].as_array().is_some_and(|all| all.contains(&kind.into()));
        // Rustdoc takes examples from what Rust programs link with only.
        let is_linked = is("lib") || is("rlib");
        if !is_linked && !is("cdylib") {
            continue;
        }
        let mut compare = |key: &str, are_written: bool, what: &str| match (
            target[key].as_bool() == Some(true),
            are_written,
        ) {
            (false, true) => found.push(format!("{name}: `{key} = false`, but it has {what}")),
            (true, false) if !written.generated => {
                found.push(format!("{name}: no {what}: add `{key} = false`"))
            }
            _ => {}
        };
        compare("test", written.tests, "unit tests");
        if is_linked {
            compare("doctest", written.examples, "examples in its documentation");
        }
    }
    found
}

fn has_test(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| line == "#[test]")
}

/// Returns true if a comment of documentation has Rust that rustdoc compiles.
fn has_example(text: &str) -> bool {
    let mut is_within = false;
    for line in text.lines().map(str::trim) {
        let Some(line) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_within = false;
            continue;
        };
        let Some(words) = line.trim().strip_prefix("```") else { continue };
        if !is_within && is_compiled(words) {
            return true;
        }
        is_within = !is_within;
    }
    false
}

/// Returns true if rustdoc compiles the block of code that these words open.
fn is_compiled(words: &str) -> bool {
    const RUST: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];
    words.split(',').next().is_some_and(|first| RUST.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(test: bool, doctest: bool) -> Value {
        json!({ "name": "one", "targets": [{ "kind": ["lib"], "test": test, "doctest": doctest }] })
    }

    #[test]
    fn a_test_that_no_target_runs_is_found() {
        let written = Written { tests: true, examples: true, generated: false };
        assert!(faults_of(&package(true, true), &written).is_empty());
        assert_eq!(faults_of(&package(false, true), &written).len(), 1);
        assert_eq!(faults_of(&package(false, false), &written).len(), 2);
    }

    #[test]
    fn a_target_without_tests_is_found() {
        assert!(faults_of(&package(false, false), &Written::default()).is_empty());
        assert_eq!(faults_of(&package(true, true), &Written::default()).len(), 2);
    }

    #[test]
    fn examples_are_told_from_other_blocks() {
        assert!(has_example("//! Text.\n//! ```\n//! let a = 1;\n//! ```\n"));
        assert!(has_example("/// ```compile_fail,E0308\n/// x\n/// ```\n"));
        assert!(!has_example("/// ```text\n/// a picture\n/// ```\nfn x() {}\n"));
        assert!(!has_example("let text = \"```\";\n"));
    }
}
