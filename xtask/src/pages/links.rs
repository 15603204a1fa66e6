//! Links between pages, and mentions of pages and of their sections in source files.
//!
//! A link to a file must find the file, and its anchor must be a heading, under the name that code
//! hosts derive from the heading. A source file that names a page (a path below `docs` that ends in
//! `.md`) must name an existing page. If a quoted section follows the name, the page must have a
//! heading of that text, or a paragraph that begins with that text in bold. Not here: links to
//! other hosts, whose answer is no property of this tree.

use super::files::{File, is_page};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Returns an error line for each link and each mention that leads nowhere.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let pages = files.iter().filter(|file| is_page(file));
    let pages: HashMap<&Path, &File> = pages.map(|file| (file.path.as_path(), file)).collect();
    let mut wrong = Vec::new();
    for file in pages.values() {
        wrong.extend(broken(file, &pages));
    }
    for file in files {
        wrong.extend(stale(file, &pages));
    }
    wrong.sort();
    wrong
}

/// Returns an error line for each link of a page that leads nowhere.
fn broken(file: &File, pages: &HashMap<&Path, &File>) -> Vec<String> {
    let mut wrong = Vec::new();
    for LinkTarget { path, anchor } in targets(file) {
        let page = pages.get(path.as_path());
        let has_anchor = |page: &&File| anchors(&page.text).contains(&anchor);
        if page.is_none() && !path.exists() {
            wrong.push(format!("{}: {} is not there", file.path.display(), path.display()));
        } else if !anchor.is_empty() && !page.is_some_and(has_anchor) {
            wrong.push(format!("{}: no #{anchor} in {}", file.path.display(), path.display()));
        }
    }
    wrong
}

/// The target of a link.
pub(super) struct LinkTarget {
    /// Relative to the workspace's folder.
    pub(super) path: PathBuf,
    /// Empty if the link has none.
    pub(super) anchor: String,
}

/// Returns the targets of a page's links.
pub(super) fn targets(file: &File) -> Vec<LinkTarget> {
    let text = prose(&file.text);
    let mut targets = Vec::new();
    for (before, after) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
        for (at, _) in text.match_indices(before) {
            let rest = &text[at + before.len()..];
            let Some((target, _)) = rest.split_once(after) else { continue };
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = file.path.parent().unwrap_or(Path::new(""));
            let path = if path.is_empty() { file.path.clone() } else { plain(&folder.join(path)) };
            targets.push(LinkTarget { path, anchor: anchor.to_owned() });
        }
    }
    targets
}

/// Returns a path with `.` and `..` resolved by text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Returns the text of a page without its code, in which links are not links.
fn prose(text: &str) -> String {
    let mut prose = String::new();
    for line in without_code(text) {
        // Splitting at backticks leaves text and inline code in turns, text first.
        line.split('`').step_by(2).for_each(|part| prose.push_str(part));
        prose.push('\n');
    }
    prose
}

/// Returns the lines of a page that are neither within a code fence nor a fence.
fn without_code(text: &str) -> impl Iterator<Item = &str> {
    let mut is_within = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_within ^= is_fence;
        !is_within && !is_fence
    })
}

/// Returns the texts of a page's headings, without the leading `#`.
fn headings(text: &str) -> impl Iterator<Item = &str> {
    without_code(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
}

/// Returns the anchors of a page's headings.
///
/// A repeated heading gets a number: the second `Twice` has the anchor `twice-1`.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for heading in headings(text) {
        let slug = slug(heading);
        let count = seen.entry(slug.clone()).or_default();
        anchors.push(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns an error line for each mention of a page or section that does not exist.
fn stale(file: &File, pages: &HashMap<&Path, &File>) -> Vec<String> {
    // The samples in the tests of this check name pages that do not exist.
    if file.path.starts_with("xtask/src/pages") || file.path == Path::new("xtask/src/pages.rs") {
        return Vec::new();
    }
    let text = if is_page(file) { file.text.clone() } else { joined(&file.text) };
    let mut wrong = Vec::new();
    for (at, _) in text.match_indices("docs/") {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
        let rest = &text[at..];
        let Some(end) = rest.find(|c| !is_part(c)).or(Some(rest.len())) else { continue };
        // A full stop behind the name ends the sentence and is not a part of the name.
        let name = rest[..end].trim_end_matches('.');
        if !name.ends_with(".md") || text[..at].ends_with(|c: char| c.is_alphanumeric()) {
            continue;
        }
        let Some(page) = pages.get(Path::new(name)) else {
            wrong.push(format!("{}: names {name}, which is not there", file.path.display()));
            continue;
        };
        let missing = quoted(&rest[name.len()..]).filter(|words| !has_section(&page.text, words));
        wrong.extend(
            missing.map(|words| format!("{}: no \"{words}\" in {name}", file.path.display())),
        );
    }
    wrong
}

/// Returns the text of a source file with the comment marks removed and all lines joined, so that a
/// mention may span two lines.
fn joined(text: &str) -> String {
    let marks: &[char] = &['/', '!', '*', '#', ' ', '\t'];
    let lines = text.lines().map(|line| line.trim_start_matches(marks));
    lines.collect::<Vec<_>>().join(" ")
}

/// Returns the sections quoted behind a page's name: `, "One"`, `, "One" (2) and "Two"`.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start_matches('`').strip_prefix(", \"");
    std::iter::from_fn(move || {
        let (words, behind) = rest?.split_once('"')?;
        let behind = behind.trim_start_matches(|c: char| " ,()".contains(c) || c.is_numeric());
        rest = behind.strip_prefix("and ").unwrap_or(behind).strip_prefix('"');
        Some(words)
    })
}

/// Returns true if a page has a heading, or a paragraph in bold, that begins with `words`.
fn has_section(page: &str, words: &str) -> bool {
    let bare = |text: &str| text.replace(['`', '*'], "");
    let is_it = |text: &str| bare(text).starts_with(words);
    let mut begins = page.lines().map(|line| {
        line.trim_start_matches(|c: char| c.is_numeric() || matches!(c, ' ' | '.' | '-'))
    });
    let is_bold = |line: &str| line.trim_start_matches("* ").starts_with("**");
    let mut in_bold = |line: &str| is_bold(line) && is_it(line.trim_start_matches("* "));
    headings(page).any(is_it) || begins.any(&mut in_bold)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn links_that_lead_nowhere_are_found_and_no_others() {
        let a = "# A\n[b](use/b.md#two-words--one) [up](../README.md) [x](https://x.invalid)\n\
                 `[code](none.md)` ![p](none.svg)\n```\n[code](none.md)\n```\n[b](use/b.md#three)\n";
        let files = [
            file("README.md", "[a](docs/a.md) <img src=\"docs/none.png\">"),
            file("docs/a.md", a),
            file("docs/use/b.md", "## Two `words`: & one\n[a](../a.md#a) [here](#none)\n"),
        ];
        let expected = [
            "README.md: docs/none.png is not there",
            "docs/a.md: docs/none.svg is not there",
            "docs/a.md: no #three in docs/use/b.md",
            "docs/use/b.md: no #none in docs/use/b.md",
        ];
        assert_eq!(check(&files), expected);
    }

    #[test]
    fn headings_are_called_as_code_hosts_call_them() {
        let text = "# Other hosts (`x --network`)\n## Twice\n## Twice\n```\n# code\n```\n";
        assert_eq!(anchors(text), ["other-hosts-x---network", "twice", "twice-1"]);
    }

    #[test]
    fn mentions_of_pages_and_sections_are_looked_at() {
        let (a, none) = ("docs/a.md", "docs/none.md");
        let text = format!(
            "//! Read `{a}`,\n//! \"Going\n//! home\" (1) and \"Order\". See {none}.\n\
             // `{a}`, \"Nowhere\".\n let x = \"{a}\", \"y\";\n"
        );
        let files = [
            file("docs/a.md", "## Going home\n\n* **Order.** One.\n"),
            file("crates/x/src/lib.rs", &text),
        ];
        let expected = [
            format!("crates/x/src/lib.rs: names {none}, which is not there"),
            format!("crates/x/src/lib.rs: no \"Nowhere\" in {a}"),
        ];
        assert_eq!(check(&files), expected);
    }
}
