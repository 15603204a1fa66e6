//! The tables of `sojourn-bench ipc` as text. Not here: any measurement (`measure.rs`, `many.rs`).

use std::fmt::Write as _;

use super::many::{ManyCell, SIZE};
use super::measure::{Cell, ITEM, Settings};
use super::row::{Kind, Mode};
use crate::machine::Machine;
use crate::table::{Table, bytes, duration, ratio};

/// Formats the heading: machine, kernel, processors, rounds.
pub(super) fn head(machine: &Machine, settings: &Settings) -> String {
    let mut text = format!(
        "Sojourn IPC benchmark: {}, {} processors, Linux {}, load {:.2}\n\
         server on processor {}, client on {}; {} rounds of {} a cell; medians over rounds\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load,
        settings.processors[0],
        settings.processors[1],
        settings.rounds,
        duration(settings.batch_ns),
    );
    if !machine.rivals {
        text.push_str("built without the rivals that are other crates (feature `rivals`)\n");
    }
    text
}

fn find<'a>(cells: &'a [Cell], row: &str, size: usize) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.row == row && cell.size == size)
}

fn names(cells: &[Cell]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.row.as_str()) {
            names.push(&cell.row);
        }
    }
    names
}

/// Returns the time of the fastest row of a kind at one size, in nanoseconds.
pub(super) fn fastest<'a>(
    cells: impl IntoIterator<Item = &'a Cell>,
    kind: Kind,
    size: usize,
) -> Option<f64> {
    let fits = |cell: &&Cell| cell.kind == kind && cell.size == size && cell.ns > 0.0;
    cells.into_iter().filter(fits).map(|cell| cell.ns).min_by(f64::total_cmp)
}

/// Formats one mode: times by size, then the short call and the item in detail.
pub(super) fn round_trips(mode: Mode, cells: &[Cell], settings: &Settings) -> String {
    let mut text = format!("== round trip by size of the request: {} ==\n", mode.title());
    let head = settings.sizes.iter().map(|&size| bytes(size));
    let mut table = Table::new(std::iter::once("".to_owned()).chain(head));
    for row in names(cells) {
        let figure = |&size: &usize| match find(cells, row, size) {
            Some(cell) if cell.ns > 0.0 => duration(cell.ns),
            _ => "-".into(),
        };
        let figures = settings.sizes.iter().map(figure);
        table.row(std::iter::once(row.to_owned()).chain(figures));
    }
    text.push_str(&table.render());
    for &size in settings.sizes.iter().filter(|&&size| size == 0 || size == ITEM) {
        let _ = write!(text, "\n{} in detail\n{}", bytes(size), detail(cells, size));
    }
    for cell in failed(cells) {
        let _ = writeln!(text, "  {}: {}", cell.row, cell.error.as_deref().unwrap_or_default());
    }
    text
}

/// Returns the first cell with an error of each row that has one.
fn failed(cells: &[Cell]) -> Vec<&Cell> {
    let mut failed: Vec<&Cell> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.error.is_some()) {
        if !failed.iter().any(|other| other.row == cell.row) {
            failed.push(cell);
        }
    }
    failed
}

fn detail(cells: &[Cell], size: usize) -> String {
    let floor = cells.iter().find(|c| c.kind == Kind::Floor && c.size == 0).map_or(0.0, |c| c.ns);
    let copy = find(cells, "floor: memcpy", size).map_or(0.0, |cell| cell.ns);
    let ours = fastest(cells, Kind::Ours, size).unwrap_or(0.0);
    let head = ["", "median", "p50", "p99", "processor time", "x floor", "x Sojourn"];
    let mut table = Table::new(head);
    for cell in cells.iter().filter(|cell| cell.size == size && cell.ns > 0.0) {
        table.row([
            cell.row.clone(),
            duration(cell.ns),
            duration(cell.p50_ns),
            duration(cell.p99_ns),
            duration(cell.cpu_ns),
            ratio(cell.ns, floor + copy),
            ratio(cell.ns, ours),
        ]);
    }
    table.render()
}

/// Returns the rate of a cell in MB/s (10^6 bytes).
pub(super) fn megabytes_per_s(cell: &Cell) -> f64 {
    if cell.ns > 0.0 { cell.size as f64 * 1e3 / cell.ns } else { 0.0 }
}

/// Formats the bandwidth of large items.
pub(super) fn bandwidth(cells: &[Cell], settings: &Settings) -> String {
    let mut text =
        format!("== bandwidth, messages of {}, MB/s (processor time each) ==\n", bytes(ITEM));
    let modes = settings.modes();
    let columns =
        modes.iter().flat_map(|mode| [format!("{}: one way", mode.title()), "call".to_owned()]);
    let mut table = Table::new(std::iter::once(String::new()).chain(columns));
    for row in names(cells) {
        let mut line = vec![row.to_owned()];
        for &mode in &modes {
            for one_way in [true, false] {
                let wanted = |c: &&Cell| c.row == row && c.mode == mode && c.one_way == one_way;
                line.push(match cells.iter().find(wanted) {
                    Some(cell) if cell.ns > 0.0 => {
                        format!("{:.0} ({})", megabytes_per_s(cell), duration(cell.cpu_ns))
                    }
                    _ => "-".into(),
                });
            }
        }
        table.row(line);
    }
    text.push_str(&table.render());
    for cell in failed(cells) {
        let _ = writeln!(text, "  {}: {}", cell.row, cell.error.as_deref().unwrap_or_default());
    }
    text
}

/// Formats the table of many clients.
pub(super) fn many(cells: &[ManyCell]) -> String {
    let mut text = format!(
        "== many clients on one server, {} requests, clients and server on two processors ==\n",
        bytes(SIZE)
    );
    let head = ["", "clients", "calls/s", "p50", "p99", "max", "processor time"];
    let mut table = Table::new(head);
    for cell in cells {
        if let Some(error) = &cell.error {
            table.row([cell.row.clone(), cell.clients.to_string(), error.clone()]);
            continue;
        }
        table.row([
            cell.row.clone(),
            cell.clients.to_string(),
            format!("{:.0}", cell.calls_per_s),
            duration(cell.p50_ns),
            duration(cell.p99_ns),
            duration(cell.max_ns),
            duration(cell.cpu_ns),
        ]);
    }
    text.push_str(&table.render());
    text
}
