//! The check that no file of code is longer than 450 lines (CONTRIBUTING.md). A longer one has two
//! subjects, and is divided.
//!
//! Files of tests are left out: they grow by cases, not by subjects. The length of functions is
//! clippy's matter (`clippy.toml`).

use crate::columns::sources;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Largest number of lines of a file.
const MOST: usize = 450;

/// Fails with the files that are too long.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    for file in sources()? {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let lines = text.lines().count();
        if lines > MOST && !is_test(&file) {
            found.push(format!("{}: {lines}", file.display()));
        }
    }
    if !found.is_empty() {
        bail!("files of more than {MOST} lines:\n{}", found.join("\n"));
    }
    Ok(())
}

/// Returns true for a file that has nothing but tests, by its name or its folder's.
fn is_test(file: &Path) -> bool {
    let is_named = |name: &str| name == "tests" || name.ends_with("_tests");
    let names = file.components().filter_map(|part| part.as_os_str().to_str());
    names.map(|name| name.strip_suffix(".rs").unwrap_or(name)).any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_are_known_by_their_names() {
        for path in ["crates/ipc/tests/hostile.rs", "crates/a/src/set_tests.rs", "a/src/tests.rs"] {
            assert!(is_test(Path::new(path)), "{path}");
        }
        for path in ["crates/a/src/set.rs", "crates/a/src/attests.rs", "xtask/src/test.rs"] {
            assert!(!is_test(Path::new(path)), "{path}");
        }
    }
}
