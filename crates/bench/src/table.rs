//! Plain text tables: the first column is aligned to the left, the others to the right.

use std::fmt::Write as _;

/// A table under construction.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes an empty table with these headings.
    pub(crate) fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Appends a row; missing cells stay empty.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Formats the table, with a rule under the headings.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).chain([self.head.len()]).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        line(&mut text, &self.head, &widths);
        let rule = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
        let _ = writeln!(text, "{}", "-".repeat(rule));
        for row in &self.rows {
            line(&mut text, row, &widths);
        }
        text
    }
}

fn line(text: &mut String, cells: &[String], widths: &[usize]) {
    let mut out = String::new();
    for (column, &width) in widths.iter().enumerate() {
        let cell = cells.get(column).map_or("", String::as_str);
        let _ = match column {
            0 => write!(out, "{cell:<width$}"),
            _ => write!(out, "  {cell:>width$}"),
        };
    }
    let _ = writeln!(text, "{}", out.trim_end());
}

/// Formats nanoseconds with three digits and a unit.
pub(crate) fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 100.0 => format!("{ns:.1} ns"),
        ns if ns < 1_000.0 => format!("{ns:.0} ns"),
        ns if ns < 10_000.0 => format!("{:.2} us", ns / 1e3),
        ns if ns < 100_000.0 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1_000_000.0 => format!("{:.0} us", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// Formats bytes with a binary unit.
pub(crate) fn bytes(count: usize) -> String {
    match count {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// Formats `a / b`; a dash if either is zero.
pub(crate) fn ratio(a: f64, b: f64) -> String {
    if b > 0.0 && a > 0.0 { format!("{:.2}", a / b) } else { "-".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["name", "ns"]);
        table.row(["a", "1"]);
        table.row(["longer", "1000"]);
        assert_eq!(table.render(), "name      ns\n------------\na          1\nlonger  1000\n");
    }

    #[test]
    fn units() {
        assert_eq!(duration(99.94), "99.9 ns");
        assert_eq!(duration(4321.0), "4.32 us");
        assert_eq!(bytes(65_536), "64 KiB");
        assert_eq!(bytes(112), "112 B");
        assert_eq!(ratio(3.0, 2.0), "1.50");
        assert_eq!(ratio(3.0, 0.0), "-");
    }
}
