//! Consistency of the pages (`docs/`, README): links, the index, and the pages' tables.
//!
//! Links must lead somewhere (`links`), every page must be in the index and in the README, every
//! reason must have its section in the page for troubleshooting, and every setting must have its
//! row in the page of settings. Paragraphs must be short enough to be skimmed (`paragraphs`).
//! Reasons and settings are read from the text of the source that defines them (`source`), because
//! this package depends on none of the crates that it builds. Not here: the content of the pages.

mod files;
mod links;
mod paragraphs;
mod source;

use anyhow::{Result, bail};
use files::{File, collect, is_page, read};
use std::path::{Path, PathBuf};

const README: &str = "README.md";
const INDEX: &str = "docs/README.md";
const TROUBLESHOOTING: &str = "docs/use/troubleshooting.md";
const SETTINGS: &str = "docs/use/settings.md";

/// Checks all pages, and fails with a list of everything that is wrong.
pub(crate) fn check() -> Result<()> {
    let mut files = Vec::new();
    collect(Path::new("."), &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut wrong = links::check(&files);
    wrong.extend(index(&files));
    wrong.extend(paragraphs::check(&files));
    wrong.extend(reasons()?);
    wrong.extend(settings()?);
    if !wrong.is_empty() {
        bail!("{} things are wrong with the pages:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}

/// Returns an error line for each page that the README or the index does not link.
fn index(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_in_docs = |path: &Path| path.starts_with("docs");
    let is_at_top = |path: &Path| path.components().count() == 1;
    for (from, all) in [(README, true), (INDEX, false)] {
        let linked: Vec<PathBuf> = files
            .iter()
            .filter(|file| file.path == Path::new(from))
            .flat_map(links::targets)
            .map(|target| target.path)
            .collect();
        for file in files.iter().filter(|file| is_page(file)) {
            let path = &file.path;
            let belongs = is_in_docs(path) || (all && is_at_top(path));
            if belongs && path != Path::new(from) && !linked.contains(path) {
                wrong.push(format!("{from}: no link to {}", path.display()));
            }
        }
    }
    wrong
}

/// Returns an error line for each reason without a section, and each section without a reason.
fn reasons() -> Result<Vec<String>> {
    let reasons = source::reasons()?;
    let sections = source::sections(&read(TROUBLESHOOTING)?);
    let missing = reasons.iter().filter(|reason| !sections.contains(reason));
    let stale = sections.iter().filter(|section| !reasons.contains(section));
    let missing = missing.map(|reason| format!("{TROUBLESHOOTING}: no section `{reason}`"));
    let stale = stale.map(|section| format!("{TROUBLESHOOTING}: no reason is called `{section}`"));
    Ok(missing.chain(stale).collect())
}

/// Returns an error line for each setting and each flag without a row.
fn settings() -> Result<Vec<String>> {
    let page = read(SETTINGS)?;
    let names = source::settings()?.into_iter().chain(source::flags()?);
    // A row has the name alone, or the name followed by its value.
    let has = |name: &String| [format!("`{name}`"), format!("`{name} "), format!("`{name}[")];
    let missing = names.filter(|name| !has(name).iter().any(|form| page.contains(form)));
    Ok(missing.map(|name| format!("{SETTINGS}: no row for `{name}`")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_nobody_links_is_found() {
        let page = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            page(README, "[a](docs/a.md) [index](docs/README.md)"),
            page(INDEX, "[a](a.md)"),
            page("docs/a.md", ""),
            page("docs/b.md", ""),
            page("C.md", ""),
            page("crates/x/README.md", ""),
        ];
        let expected = [
            "README.md: no link to docs/b.md",
            "README.md: no link to C.md",
            "docs/README.md: no link to docs/b.md",
        ];
        assert_eq!(index(&files), expected);
    }
}
