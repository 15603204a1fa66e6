//! The text files of the tree that the checks of the pages look at.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Endings of files whose mentions of pages are looked at.
const SOURCES: [&str; 8] = ["rs", "c", "h", "idl", "sh", "toml", "service", "txt"];

/// A text file of the tree, by its path from the workspace's folder.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Pages and sources below a folder, but for what is hidden or built.
pub(super) fn collect(folder: &Path, files: &mut Vec<File>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_foreign = name.starts_with('.') || name == "target" || name == "node_modules";
        if is_foreign {
            continue;
        }
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            collect(&path, files)?;
        } else if ending == "md" || SOURCES.contains(&&*ending) {
            // Samples of damaged text are no pages.
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let path = path.strip_prefix(".").unwrap_or(&path).to_owned();
            files.push(File { path, text });
        }
    }
    Ok(())
}

pub(super) fn is_page(file: &File) -> bool {
    file.path.extension().is_some_and(|ending| ending == "md")
}

pub(super) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).context(path.to_owned())
}
