//! Output: notes on standard error, results on standard output, and tables.
//!
//! There are no colours, and nothing here depends on a terminal. An error of standard error is
//! ignored.

use anyhow::{Context as _, Result};
use serde::{Serialize, Serializer};
use sojourn_session::ProcessId;
use std::io::Write as _;

/// Prints one line on standard error, with this program's name.
pub(crate) fn note(text: &str) {
    // One write(2) keeps the line whole among the lines of other programs.
    let _ = std::io::stderr().write_all(noted(text).as_bytes());
}

/// Returns the lines of a note. Names of programs and files may be in it.
fn noted(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    format!("sojourn: {}\n", lines.join("\n"))
}

/// Prints a result on standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the result")
}

/// Prints a result as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&json(value)?)
}

/// Writes the number of a process in JSON.
pub(crate) fn process_number<S: Serializer>(
    pid: &ProcessId,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    pid.0.serialize(to)
}

/// Formats a value as indented JSON. All characters that `printable` replaces are escaped, also
/// those that JSON allows in strings: a terminal may obey them.
pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).context("cannot make JSON")?;
    let mut escaped = String::with_capacity(text.len() + 1);
    for one in text.chars() {
        // All of them have four digits.
        match one != '\n' && (one.is_control() || directs(one)) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(one))),
            false => escaped.push(one),
        }
    }
    escaped.push('\n');
    Ok(escaped)
}

/// Rows of text in columns.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    short: Vec<bool>,
}

/// Spaces between columns.
const GAP: usize = 2;
/// The least width of a column that is shortened: the longest IPv4 address with its port.
const SHORTEST: usize = 21;

impl Table {
    /// Makes a table with headings. A heading that begins with `>` is of a column of numbers, which
    /// are aligned to the right; `~` marks a column of text that may be shortened.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let short = headings.iter().map(|heading| heading.starts_with('~')).collect();
        let first =
            headings.iter().map(|heading| heading.trim_start_matches(['>', '~']).to_owned());
        Self { rows: vec![first.collect()], right, short }
    }

    /// Adds a row, of as many cells as there are headings.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Formats the table. Columns that may be shortened are, until no line is longer than `columns`
    /// or all are at their least width.
    pub(crate) fn text_within(mut self, columns: Option<usize>) -> String {
        let widths = self.widths();
        let len = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let mut excess = len.saturating_sub(columns.unwrap_or(usize::MAX));
        let mut at_most = widths;
        while excess > 0 {
            let can = |column: &usize| self.short[*column] && at_most[*column] > SHORTEST;
            let widest = (0..at_most.len()).filter(can).max_by_key(|column| at_most[*column]);
            let Some(widest) = widest else { break };
            at_most[widest] -= 1;
            excess -= 1;
        }
        for row in &mut self.rows {
            for (cell, at_most) in row.iter_mut().zip(&at_most) {
                *cell = shortened(cell, *at_most);
            }
        }
        self.text()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.right.len()).map(width).collect()
    }

    /// Formats the table.
    pub(crate) fn text(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let gap = " ".repeat(width - cell.chars().count().min(width));
                match right {
                    true => line.extend([&gap, cell, "  "]),
                    false => line.extend([cell, gap.as_str(), "  "]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Shortens a text in its middle: addresses differ at their beginning or at their end.
fn shortened(text: &str, at_most: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= at_most {
        return text.to_owned();
    }
    let kept = at_most.saturating_sub(1);
    let (head, tail) = (kept / 2, kept - kept / 2);
    let ends = [&chars[..head], &['…'], &chars[chars.len() - tail..]];
    ends.concat().into_iter().collect()
}

/// Replaces control characters: names come from other programs and must not control the terminal,
/// nor turn round what stands beside them.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || directs(c) { '?' } else { c }).collect()
}

/// Returns true for characters that break lines or change the direction of text (Unicode,
/// `Bidi_Control` and the separators of lines and paragraphs).
fn directs(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats a duration (ms).
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{s}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

/// Formats a number of bytes.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let power = (count.ilog2() / 10).min(UNITS.len() as u32);
    let value = count as f64 / (1u64 << (10 * power)) as f64;
    format!("{value:.1} {}", UNITS[power as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_control_characters_do_not_pass() {
        let mut table = Table::new(&["NAME", ">BYTES", "END"]);
        table.row(vec!["a\u{1b}[31m".into(), "1".into(), "x".into()]);
        table.row(vec!["été".into(), "1000".into(), String::new()]);
        assert_eq!(table.text(), "NAME    BYTES  END\na?[31m      1  x\nété      1000\n");
    }

    #[test]
    fn names_control_no_terminal_in_notes_and_json_either() {
        let name = "a\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\u{202e}b";
        assert_eq!(noted(&format!("{name}\nc")), "sojourn: a?]0;x??2J??b\nc\n");
        let text = json(&[name]).unwrap();
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || directs(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [name]);
    }

    #[test]
    fn long_cells_are_shortened_where_that_may_be_and_only_as_far_as_it_must() {
        let table = || {
            let mut table = Table::new(&[">N", "~FROM", "~TO", "NAME"]);
            let long = format!("/run/{}.sock", "x".repeat(60));
            table.row(vec!["1".into(), long, "127.0.0.1:80".into(), "a-rather-long-name".into()]);
            table
        };
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        let whole = longest(&table().text());
        assert_eq!(table().text_within(None), table().text());
        assert_eq!(table().text_within(Some(whole)), table().text());
        let shorter = table().text_within(Some(70));
        assert_eq!(longest(&shorter), 70, "{shorter}");
        assert!(shorter.contains("/run/x") && shorter.contains("x.sock  127.0.0.1:80  a-rather"));
        let narrow = table().text_within(Some(10));
        assert_eq!(longest(&narrow), 1 + 2 + 21 + 2 + 12 + 2 + 18, "{narrow}");
    }

    #[test]
    fn amounts_are_in_words() {
        assert_eq!((bytes(0), bytes(1023)), ("0 B".into(), "1023 B".into()));
        assert_eq!((bytes(1024), bytes(3 << 20)), ("1.0 KiB".into(), "3.0 MiB".into()));
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!((span(1250), span(61_000)), ("1.2 s".into(), "1 min 1 s".into()));
        assert_eq!((span(7_260_000), span(90_000_000)), ("2 h 1 min".into(), "1 d 1 h".into()));
    }
}
