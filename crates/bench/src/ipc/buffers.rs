//! Calls whose messages lie badly: at odd places, of odd sizes, and in no cache.
//!
//! All rows of the round trips carry them; the receiver's memory is the row's own affair. Not here:
//! copy routines alone (`copies`).

use serde::Serialize;

use super::measure::{Cell, Settings, alternate};
use super::row::{Mode, Placement, Row};
use super::worker::Task;
use crate::table::{Table, duration};

/// The name of a case, the bytes of a message, and where it lies.
struct Case {
    name: &'static str,
    size: usize,
    placement: Placement,
}

const CASES: [Case; 5] = [
    case("9001 B, 3 B past a page", 9001, 3, false),
    case("64 KiB, 16 B past a page", 64 << 10, 16, false),
    case("65521 B, 8 B past a page", 65_521, 8, false),
    case("64 KiB, not in cache", 64 << 10, 16, true),
    case("1 MiB, not in cache", 1 << 20, 16, true),
];

const fn case(name: &'static str, size: usize, offset: usize, is_cold: bool) -> Case {
    Case { name, size, placement: Placement { offset, is_cold } }
}

/// The cells of one case in all modes.
#[derive(Debug, Serialize)]
pub(super) struct BufferCells {
    case: &'static str,
    cells: Vec<Cell>,
}

/// Measures the rows that `rows` makes, in `modes`, and prints a table.
pub(super) fn measure(
    settings: &Settings,
    modes: &[Mode],
    rows: impl Fn() -> Vec<Box<dyn Row>>,
) -> Vec<BufferCells> {
    let mut all = Vec::new();
    for case in &CASES {
        // The workers are forked in `alternate`, and inherit the placement.
        case.placement.set();
        let of = |&mode| alternate(&rows(), mode, &[Task::Call], &[case.size], settings);
        all.push(BufferCells { case: case.name, cells: modes.iter().flat_map(of).collect() });
    }
    Placement::default().set();
    for &mode in modes {
        println!("{}", table(mode, &all));
    }
    all
}

fn table(mode: Mode, all: &[BufferCells]) -> String {
    let mut table = Table::new(std::iter::once("").chain(all.iter().map(|of| of.case)));
    let mut names: Vec<&str> = Vec::new();
    for cell in all.iter().flat_map(|of| &of.cells).filter(|cell| cell.mode == mode) {
        if !names.contains(&cell.row.as_str()) {
            names.push(&cell.row);
        }
    }
    for name in names {
        let figure = |of: &BufferCells| {
            let found = of.cells.iter().find(|cell| cell.mode == mode && cell.row == name);
            found.filter(|cell| cell.ns > 0.0).map_or("-".into(), |cell| duration(cell.ns))
        };
        table.row(std::iter::once(name.to_owned()).chain(all.iter().map(figure)));
    }
    let title = mode.title();
    format!("== round trip of messages that lie badly: {title} ==\n{}", table.render())
}
