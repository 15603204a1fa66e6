//! Text files of the source tree that the checks of the pages read.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Extensions of source files whose comments may mention pages.
const SOURCES: [&str; 8] = ["rs", "c", "h", "idl", "sh", "toml", "service", "txt"];

/// Text file, with its path relative to the workspace's folder.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Collects the pages and source files below a folder, except hidden and built ones.
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
            // Some samples of the tests are not valid UTF-8; such a file is no page.
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
