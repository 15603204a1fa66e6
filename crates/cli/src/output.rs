//! What is printed: notes on standard error, results on standard output, and tables.
//!
//! No colours, no knowledge of terminals; a closed standard error is nobody's failure.

use anyhow::{Context as _, Result};
use serde::Serialize;
use std::io::Write as _;

/// One line on standard error, with our name.
pub(crate) fn note(text: &str) {
    // In one write, so that it stays one line among those of other programs.
    let _ = std::io::stderr().write_all(format!("sojourn: {text}\n").as_bytes());
}

/// A result, on standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the result")
}

/// A result as JSON, for people to read as well.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("cannot make JSON")?;
    text.push('\n');
    print(&text)
}

/// Rows of text in columns.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// With headings; one that begins with `>` is of numbers, which are set to the right.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let first = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned());
        Self { rows: vec![first.collect()], right }
    }

    /// One more row, of as many cells as there are headings.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// The lines.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
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

/// Names come from other programs: no control characters reach the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A span of time in words (ms).
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{s}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

/// A number of bytes in words.
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
    fn amounts_are_in_words() {
        assert_eq!((bytes(0), bytes(1023)), ("0 B".into(), "1023 B".into()));
        assert_eq!((bytes(1024), bytes(3 << 20)), ("1.0 KiB".into(), "3.0 MiB".into()));
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!((span(1250), span(61_000)), ("1.2 s".into(), "1 min 1 s".into()));
        assert_eq!((span(7_260_000), span(90_000_000)), ("2 h 1 min".into(), "1 d 1 h".into()));
    }
}
