//! The check that paragraphs of the pages for users and readers of the code can be skimmed: they
//! have at most 70 words.
//!
//! A paragraph is text between blank lines, or an item of a list. Left out: tables, headings, code.
//! Not here: the other tiers, reference and history, whose sentences are looked up one at a time.

use super::files::{File, is_page};
use std::path::Path;

/// Largest number of words of a paragraph.
const WORDS: usize = 70;
/// The tiers that are read from beginning to end, and the README.
const READ: [&str; 3] = ["README.md", "docs/use", "docs/understand"];

/// Returns an error line for each paragraph that is too long.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let is_of = |file: &File| READ.iter().any(|tier| file.path.starts_with(Path::new(tier)));
    let pages = files.iter().filter(|file| is_page(file) && is_of(file));
    let found = pages.flat_map(|file| {
        let long = long_paragraphs(&file.text).into_iter();
        long.map(|Long { line, words }| {
            let path = file.path.display();
            format!("{path}:{line}: a paragraph of {words} words; {WORDS} are the most")
        })
    });
    found.collect()
}

/// A paragraph that is too long.
#[derive(Debug, PartialEq, Eq)]
struct Long {
    /// The number of its first line.
    line: usize,
    words: usize,
}

fn long_paragraphs(text: &str) -> Vec<Long> {
    let mut found = Vec::new();
    let mut now = Long { line: 0, words: 0 };
    let mut is_in_code = false;
    // The blank line at the end ends the last paragraph.
    for (at, line) in text.lines().chain([""]).enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_in_code ^= is_fence;
        let is_prose = !is_fence && !is_in_code && is_prose(line, now.words > 0);
        if (!is_prose || begins_item(line)) && now.words > 0 {
            let done = std::mem::replace(&mut now, Long { line: 0, words: 0 });
            found.extend((done.words > WORDS).then_some(done));
        }
        if is_prose {
            now.line = if now.words == 0 { at + 1 } else { now.line };
            now.words += line.split_whitespace().count();
        }
    }
    found
}

/// Returns true for a line of a paragraph. `goes_on`: the line before is one, too; an indented line
/// is code otherwise, unless it begins an item or goes on with one.
fn is_prose(line: &str, goes_on: bool) -> bool {
    let is_code = line.starts_with("    ") && !goes_on && !begins_item(line);
    let text = line.trim_start();
    !text.is_empty() && !text.starts_with(['|', '#', '<']) && !is_code
}

fn begins_item(line: &str) -> bool {
    let text = line.trim_start();
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < text.len() && number.starts_with(". ");
    text.starts_with("* ") || text.starts_with("- ") || is_numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> Vec<usize> {
        long_paragraphs(text).iter().map(|long| long.line).collect()
    }

    #[test]
    fn long_paragraphs_and_items_are_found_with_their_first_lines() {
        let many = "word ".repeat(WORDS + 1);
        let text = format!("# A\n\n{many}\n\n* {many}\n  and\n1. {many}\n\nshort\n{many}");
        assert_eq!(lines_of(&text), [3, 5, 7, 9]);
        let found = long_paragraphs(&many);
        assert_eq!(found, [Long { line: 1, words: WORDS + 1 }]);
    }

    #[test]
    fn paragraphs_of_as_many_words_tables_headings_and_code_are_passed_over() {
        let most = "word ".repeat(WORDS);
        let many = "word ".repeat(WORDS + 1);
        let text = format!(
            "{most}\n\n{most}\n## {many}\n{most}\n| {many} |\n```\n{many}\n```\n{most}\n\n    {many}\n"
        );
        assert_eq!(lines_of(&text), Vec::<usize>::new());
    }
}
