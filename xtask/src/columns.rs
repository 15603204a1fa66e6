//! The check that no line of a comment is longer than 100 columns (CONTRIBUTING.md).
//!
//! `cargo fmt` wraps code and leaves comments as they are. A line within a string literal that
//! looks like a comment is passed over if the literal goes on behind it.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Largest number of columns of a line.
const MOST: usize = 100;
/// Folders with the project's own code.
const FOLDERS: [&str; 5] = ["crates", "examples", "fuzz", "tests", "xtask"];
/// Largest number of places in the error message.
const NAMED: usize = 20;

/// Fails with the places of comments that are too wide.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    for file in sources()? {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        found.extend(wide(&text).map(|line| format!("{}:{line}", file.display())));
    }
    if !found.is_empty() {
        let count = found.len();
        found.truncate(NAMED);
        bail!("{count} comment lines are wider than {MOST} columns:\n{}", found.join("\n"));
    }
    Ok(())
}

/// Returns the project's own Rust files, in order.
pub(crate) fn sources() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(Path::new(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Collects the Rust files below a folder, except for build folders.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let is_built = path.file_name().is_some_and(|name| name == "target");
        if path.is_dir() && !is_built {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the numbers of the comment lines of `text` that are too wide.
fn wide(text: &str) -> impl Iterator<Item = usize> + '_ {
    let is_comment = |line: &str| {
        let text = line.trim_start().strip_prefix("//");
        // A row of a table cannot be wrapped.
        let is_row = |text: &str| text.trim_start_matches(['/', '!']).trim_start().starts_with('|');
        text.is_some_and(|text| !is_row(text)) && !line.ends_with('\\')
    };
    // A line without a space at which it could be wrapped is an address or a path.
    let can_be_wrapped = |line: &str| line.trim_start().matches(' ').count() > 1;
    let lines = text.lines().enumerate();
    let is_wide =
        move |line: &str| line.chars().count() > MOST && is_comment(line) && can_be_wrapped(line);
    lines.filter(move |(_, line)| is_wide(line)).map(|(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found_and_nothing_else() {
        let long = "word ".repeat(25);
        let path = "x".repeat(100);
        let text = [
            format!("// {long}"),
            format!("let text = \"{long}\";"),
            format!("    /// {long}"),
            format!("// https://example.org/{path}"),
            format!("/// {long}\\n\\"),
            "// short".into(),
            format!("//! | {long} |"),
        ];
        assert_eq!(wide(&text.join("\n")).collect::<Vec<_>>(), [1, 3]);
    }
}
