//! The check that every unit test and every example in the documentation is run.
//!
//! A library that has none says so in its Cargo.toml (`test = false`, `doctest = false`), because a
//! test program without tests takes as long to build as another. A test that is written there
//! later would never run, so this check finds it. Files are looked at as text. Not here: tests in
//! `tests/`, each of which is a target of its own.

use crate::columns::sources;
use crate::layers::packages;
use crate::modules::read_crate;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Fails with the libraries and programs whose Cargo.toml and files differ.
pub(crate) fn check() -> Result<()> {
    let files = sources()?;
    let mut found = Vec::new();
    for package in &packages()? {
        for target in package["targets"].as_array().into_iter().flatten() {
            let name = package["name"].as_str().unwrap_or_default();
            if let Some(written) = written_for(target, &files)? {
                found.extend(faults_of(target, written).map(|fault| format!("{name}: {fault}")));
            }
        }
    }
    if !found.is_empty() {
        bail!("tests that no target runs, or targets without tests:\n{}", found.join("\n"));
    }
    Ok(())
}

/// What the files of a library or a program have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Written {
    tests: bool,
    examples: bool,
    /// Code that a build script writes, which may have tests.
    generated: bool,
}

/// Returns true if a target is of this kind.
fn is(target: &Value, kind: &str) -> bool {
    target["kind"].as_array().is_some_and(|all| all.contains(&kind.into()))
}

/// Returns what the files of a library or a program have; `None` for other targets. A library's are
/// all files beside its root and below.
fn written_for(target: &Value, files: &[PathBuf]) -> Result<Option<Written>> {
    let root = Path::new(target["src_path"].as_str().unwrap_or_default());
    let root = root.strip_prefix(std::env::current_dir()?).unwrap_or(root);
    let files: Vec<PathBuf> = if is(target, "bin") {
        read_crate(root, &|path| std::fs::read_to_string(path).ok())?.files
    } else if is(target, "lib") || is(target, "rlib") || is(target, "cdylib") {
        let folder = root.parent().unwrap_or(Path::new(""));
        files.iter().filter(|file| file.starts_with(folder)).cloned().collect()
    } else {
        return Ok(None);
    };
    let mut written = Written::default();
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        written.tests |= has_test(&text);
        written.examples |= has_example(&text);
        written.generated |= text.contains("include!(concat!(env!(\"OUT_DIR\")");
    }
    Ok(Some(written))
}

/// Describes how a target differs from what its files have.
fn faults_of(target: &Value, written: Written) -> impl Iterator<Item = String> {
    let name = target["name"].as_str().unwrap_or_default();
    let compare = move |key: &str, are_written: bool, what: &str| match (
        target[key].as_bool() == Some(true),
        are_written,
    ) {
        (false, true) => Some(format!("{name} has {what}, but `{key} = false`")),
        (true, false) if !written.generated => {
            Some(format!("{name} has no {what}: add `{key} = false`"))
        }
        _ => None,
    };
    // Rustdoc takes examples only from what Rust programs link with.
    let is_linked = is(target, "lib") || is(target, "rlib");
    let examples = is_linked
        .then(|| compare("doctest", written.examples, "examples in its documentation"))
        .flatten();
    compare("test", written.tests, "unit tests").into_iter().chain(examples)
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

    fn library(test: bool, doctest: bool) -> Value {
        json!({ "name": "one", "kind": ["lib"], "test": test, "doctest": doctest })
    }

    #[test]
    fn a_test_that_no_target_runs_is_found() {
        let written = Written { tests: true, examples: true, generated: false };
        assert_eq!(faults_of(&library(true, true), written).count(), 0);
        assert_eq!(faults_of(&library(false, true), written).count(), 1);
        assert_eq!(faults_of(&library(false, false), written).count(), 2);
        let program = json!({ "name": "one", "kind": ["bin"], "test": false, "doctest": false });
        assert_eq!(faults_of(&program, written).count(), 1);
    }

    #[test]
    fn a_target_without_tests_is_found() {
        let written = Written::default();
        assert_eq!(faults_of(&library(false, false), written).count(), 0);
        assert_eq!(faults_of(&library(true, true), written).count(), 2);
        let written = Written { generated: true, ..written };
        assert_eq!(faults_of(&library(true, true), written).count(), 0);
    }

    #[test]
    fn examples_are_told_from_other_blocks() {
        assert!(has_example("//! Text.\n//! ```\n//! let a = 1;\n//! ```\n"));
        assert!(has_example("/// ```compile_fail,E0308\n/// x\n/// ```\n"));
        assert!(!has_example("/// ```text\n/// a picture\n/// ```\nfn x() {}\n"));
        assert!(!has_example("let text = \"```\";\n"));
    }
}
