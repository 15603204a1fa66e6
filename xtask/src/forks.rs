//! The check that what runs in a program does not wait, after fork(2), for a thread that only the
//! parent has.
//!
//! A child of fork(2) has one thread, and the memory of all. A `OnceLock` that another thread was
//! filling stays so for ever in the child, and a static `Mutex` may stay locked. A signal handler
//! meets the same while its own thread fills the cell. Cells that the first of several fills
//! (`once_cell::race`) do not wait. Where a cell or lock that waits is right, a comment above it
//! that begins with `FORK:` says why (CONTRIBUTING.md). Not here: locks of one process's state,
//! which a child never touches.

use crate::columns::sources;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// The packages that run in programs.
const IN_PROGRAMS: [&str; 15] = [
    "abi", "buffers", "driver", "ipc", "ipc-c", "ipc-rt", "library", "loader", "netif", "options",
    "preload", "proto", "pump", "shm", "stream",
];

/// Fails with the places of cells and locks that wait, and do not say why that does no harm.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    for file in sources()?.into_iter().filter(|file| is_in_programs(file)) {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        found.extend(waiting(&text).into_iter().map(|line| format!("{}:{line}", file.display())));
    }
    if !found.is_empty() {
        bail!(
            "these cells or locks may make a child of fork(2) wait for ever; use a cell of \
             once_cell::race, or say in a comment that begins with FORK: why not:\n{}",
            found.join("\n")
        );
    }
    Ok(())
}

/// Returns true for the code of a package that runs in programs, without its tests.
fn is_in_programs(file: &Path) -> bool {
    let words: Vec<_> = file.iter().filter_map(|word| word.to_str()).collect();
    let is_test = |name: &str| ["tests", "fakes", "fuzz"].iter().any(|word| name.contains(word));
    matches!(words[..], ["crates", package, "src", ..] if IN_PROGRAMS.contains(&package))
        && !words.iter().any(|word| is_test(word))
}

/// Returns the numbers of the lines that declare a cell or a lock without a reason.
fn waiting(text: &str) -> Vec<usize> {
    let (mut found, mut has_reason) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line == "#[cfg(test)]" {
            // Unit tests come last in a file.
            break;
        }
        if line.starts_with("//") || line.starts_with("#[") {
            has_reason |= line.contains("FORK:");
            continue;
        }
        if may_wait(line) && !has_reason {
            found.push(index + 1);
        }
        has_reason = false;
    }
    found
}

/// Returns true for the declaration of a cell that waits, or of a static lock.
fn may_wait(line: &str) -> bool {
    let Some((name, kind)) = line.split_once(": ") else { return false };
    let is_static = name.split(' ').any(|word| word == "static");
    let has = |words: &[&str]| words.iter().any(|word| kind.contains(word));
    has(&["OnceLock<", "LazyLock<"])
        || is_static && has(&["Mutex<", "RwLock<", "Once ", "Condvar "])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_static_locks_need_a_reason() {
        let text = "struct A {\n    a: OnceLock<u32>,\n    /// FORK: set before any thread.\n    \
                    b: OnceLock<u32>,\n    c: Mutex<u32>,\n}\nstatic D: Mutex<u32> = \
                    Mutex::new(0);\n/// FORK: no child.\nstatic E: RwLock<u32> = RwLock::new(0);\n\
                    pub static F: [OnceLock<u8>; 2] = [];\n#[cfg(test)]\nstatic G: Mutex<()>\n";
        assert_eq!(waiting(text), [2, 7, 10]);
    }

    #[test]
    fn only_what_runs_in_programs_is_looked_at() {
        assert!(is_in_programs(Path::new("crates/library/src/fds/own.rs")));
        for other in ["crates/server/src/main.rs", "crates/shm/tests/fork.rs"] {
            assert!(!is_in_programs(Path::new(other)), "{other}");
        }
        assert!(!is_in_programs(Path::new("crates/library/src/session_fakes.rs")));
    }
}
