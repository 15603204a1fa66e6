//! The check that no line of a comment is longer than 100 columns (CONTRIBUTING.md).
//!
//! `cargo fmt` wraps code and leaves comments as they are. A line within a string literal that
//! looks like a comment is passed over if the literal goes on behind it. C and the interface
//! language are looked at, too; their code may be wider.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Largest number of columns of a line.
const MOST: usize = 100;
/// Folders with the project's own code.
const FOLDERS: [&str; 5] = ["crates", "examples", "fuzz", "tests", "xtask"];
/// Folders that have no Rust.
const OTHER_FOLDERS: [&str; 2] = ["bpf", "idl"];
/// Endings of files in C and in the interface language.
const OTHER_ENDINGS: [&str; 4] = ["c", "h", "idl", "acf"];
/// Largest number of places in the error message.
const NAMED: usize = 20;

/// Fails with the places of comments that are too wide.
pub(crate) fn check() -> Result<()> {
    let mut found = Vec::new();
    let mut look = |file: &Path, begins: fn(&str) -> bool| -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        found.extend(wide(&text, begins).map(|line| format!("{}:{line}", file.display())));
        Ok(())
    };
    for file in sources()? {
        look(&file, is_rust_comment)?;
    }
    for file in files(FOLDERS.iter().chain(&OTHER_FOLDERS), &OTHER_ENDINGS)? {
        look(&file, is_c_comment)?;
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
    files(FOLDERS.iter(), &["rs"])
}

/// Returns the files below these folders that have one of these endings, in order.
fn files<'a>(folders: impl Iterator<Item = &'a &'a str>, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in folders {
        collect(Path::new(folder), endings, &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Collects the files below a folder that have one of these endings, except for build folders.
fn collect(folder: &Path, endings: &[&str], files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let is_built = path.file_name().is_some_and(|name| name == "target");
        if path.is_dir() && !is_built {
            collect(&path, endings, files)?;
        } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns true for a line of Rust, without its indentation, that is a comment.
fn is_rust_comment(line: &str) -> bool {
    line.starts_with("//")
}

/// Returns true for a line of C, without its indentation, that is a comment or a part of one.
fn is_c_comment(line: &str) -> bool {
    ["//", "/*", "* "].iter().any(|sign| line.starts_with(sign))
}

/// Returns the numbers of the comment lines of `text` that are too wide.
fn wide(text: &str, begins: fn(&str) -> bool) -> impl Iterator<Item = usize> + '_ {
    let is_comment = move |line: &str| {
        let line = line.trim_start();
        // A row of a table cannot be wrapped.
        let is_row = line.trim_start_matches(['/', '!', '*']).trim_start().starts_with('|');
        begins(line) && !is_row && !line.ends_with('\\')
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
        assert_eq!(wide(&text.join("\n"), is_rust_comment).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn wide_comments_of_c_are_found_and_no_code() {
        let long = "word ".repeat(25);
        let text = [
            format!("/* {long}"),
            format!(" * {long} */"),
            format!("*word = {long}"),
            format!("    // {long}"),
            "/* short */".into(),
        ];
        assert_eq!(wide(&text.join("\n"), is_c_comment).collect::<Vec<_>>(), [1, 2, 4]);
    }
}
