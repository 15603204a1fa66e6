//! The tables of `sojourn-bench idl` as text. Not here: any measurement (`measure.rs`, `calls.rs`).

use std::fmt::Write as _;

use super::calls::CallCell;
use super::cases::Case;
use super::codec::{Kind, Language};
use super::measure::Cell;
use super::published::Published;
use super::settings::Settings;
use crate::machine::Machine;
use crate::table::{Table, bytes, duration, ratio};

/// Formats the heading: machine, kernel, rounds.
pub(super) fn head(machine: &Machine, settings: &Settings) -> String {
    let mut text = format!(
        "Sojourn IDL benchmark: {}, {} processors, Linux {}, load {:.2}\n{} rounds of {} a cell; medians over rounds\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load,
        settings.rounds,
        duration(settings.batch_ns),
    );
    if !machine.rivals {
        text.push_str("built without the rivals (feature `rivals`)\n");
    }
    text
}

fn rows(cells: &[Cell]) -> Vec<&str> {
    let mut rows: Vec<&str> = Vec::new();
    for cell in cells {
        if !rows.contains(&cell.row.as_str()) {
            rows.push(&cell.row);
        }
    }
    rows
}

fn find<'a>(cells: &'a [Cell], row: &str, case: Case) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.row == row && cell.case == case)
}

/// Formats the time of each row and case.
pub(super) fn marshalling(cells: &[Cell]) -> String {
    let mut text = String::from(
        "== marshal and unmarshal a call, request and reply, in memory (nanoseconds; p99 in brackets) ==\n",
    );
    let titles = Case::ALL.map(Case::title);
    let mut table = Table::new(std::iter::once("").chain(titles));
    for row in rows(cells) {
        let figure = |case| match find(cells, row, case) {
            Some(cell) => format!("{:.1} ({:.1})", cell.ns, cell.p99_ns),
            None => "-".into(),
        };
        table.row(std::iter::once(row.to_owned()).chain(Case::ALL.into_iter().map(figure)));
    }
    text.push_str(&table.render());
    for case in Case::ALL {
        let _ = writeln!(text, "  {}: {}", case.title(), case.legend());
    }
    text
}

/// Formats the ratio of each row to hand-coded stubs of its language, and the paper's ratio.
pub(super) fn ratios(cells: &[Cell], published: &[Published]) -> String {
    let mut text = String::from("== times hand-coded stubs of the same language ==\n");
    let titles = Case::ALL.map(Case::title);
    let mut table = Table::new(std::iter::once("").chain(titles).chain(["published (paper)"]));
    for row in rows(cells) {
        let hand = |cell: &Cell| {
            let same = |c: &&Cell| {
                c.kind == Kind::Hand && c.language == cell.language && c.case == cell.case
            };
            cells.iter().find(same).map_or(0.0, |c| c.ns)
        };
        let figure = |case| match find(cells, row, case) {
            Some(cell) => ratio(cell.ns, hand(cell)),
            None => "-".into(),
        };
        let paper =
            find(cells, row, Case::Paper).map_or_else(String::new, |cell| beside(cell, published));
        let figures = Case::ALL.into_iter().map(figure);
        table.row(std::iter::once(row.to_owned()).chain(figures).chain([paper]));
    }
    for line in published.iter().filter(|line| line.system == "Flick") {
        let mut row = vec![format!("{} (not measured here)", line.system)];
        row.extend(Case::ALL.map(|_| String::new()));
        row.push(format!("{:.2}", line.times_hand));
        table.row(row);
    }
    text.push_str(&table.render());
    text.push_str("  published: Reuther, Uhlig, Aigner 2000, table 1 (cycles: ");
    let cycles = published.iter().map(|line| format!("{} {}", line.system, line.cycles));
    let _ = writeln!(text, "{})", cycles.collect::<Vec<_>>().join(", "));
    text
}

/// Returns the paper's ratio for the system that corresponds to the row. The paper's stubs were C,
/// so rows in Rust have none, `rpcgen` excepted.
fn beside(cell: &Cell, published: &[Published]) -> String {
    let system = match (cell.kind, cell.language) {
        (Kind::Hand, Language::C) => "hand coded",
        (Kind::Ours, Language::C) => "FIDL",
        (Kind::Rpcgen, _) => "rpcgen",
        _ => return String::new(),
    };
    let found = published.iter().find(|line| line.system == system);
    found.map_or_else(String::new, |line| format!("{:.2}", line.times_hand))
}

/// Formats the whole call by argument size, which corresponds to the paper's figure 5.
pub(super) fn calls(cells: &[CallCell], threshold: usize, crossover: Option<usize>) -> String {
    let mut text =
        String::from("== whole call by size of the argument (the paper's figure 5) ==\n");
    let mut styles: Vec<&str> = Vec::new();
    let mut sizes: Vec<usize> = Vec::new();
    for cell in cells {
        if !styles.contains(&cell.style.as_str()) {
            styles.push(&cell.style);
        }
        if !sizes.contains(&cell.size) {
            sizes.push(cell.size);
        }
    }
    let mut table = Table::new(std::iter::once("").chain(styles.iter().copied()));
    let mut marked = false;
    for size in sizes {
        if !marked && size >= threshold {
            marked = true;
            table.row([format!("-- reference_above(auto): {threshold} B --")]);
        }
        let figure = |style: &&str| {
            let cell = cells.iter().find(|cell| cell.style == **style && cell.size == size);
            cell.filter(|cell| cell.ns > 0.0).map_or_else(|| "-".into(), |cell| duration(cell.ns))
        };
        table.row(std::iter::once(bytes(size)).chain(styles.iter().map(figure)));
    }
    text.push_str(&table.render());
    let found = crossover.map_or_else(|| "at no size".to_owned(), |size| format!("from {size} B"));
    let _ = writeln!(text, "  referring was the faster {found}; auto refers from {threshold} B");
    let mut shown: Vec<&str> = Vec::new();
    for cell in cells {
        if let Some(error) = &cell.error
            && !shown.contains(&cell.style.as_str())
        {
            shown.push(&cell.style);
            let _ = writeln!(text, "  {}: {error}", cell.style);
        }
    }
    text
}
