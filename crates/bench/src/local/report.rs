//! The tables of `sojourn-bench local` as text. Not here: any measurement (`measure.rs`).

use std::fmt::Write as _;

use super::measure::{Cell, Settings};
use super::row::Unit;
use super::way::RunMode;
use crate::machine::Machine;
use crate::table::{Table, duration, ratio};

/// Reasons of ends that come home because their session ended. All other reasons are early returns.
pub(crate) const ENDS: [&str; 3] = ["closed", "peer-left", "peer-died"];

/// Formats the heading: machine, kernel, rounds, and the notes on missing measurements.
pub(super) fn head(machine: &Machine, settings: &Settings, notes: &[String]) -> String {
    let mut text = format!(
        "Sojourn, sessions on one host: {}, {} processors, Linux {}, load {:.2}\n\
         up to {} rounds of {} ms for each case; medians over rounds; ratios to plain in the same run\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load,
        settings.rounds,
        settings.turn_ms,
    );
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Formats a figure with its unit.
pub(crate) fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ns => duration(value),
        Unit::PerS if value >= 1e6 => format!("{:.2} M/s", value / 1e6),
        Unit::PerS if value >= 1e4 => format!("{:.1} k/s", value / 1e3),
        Unit::PerS => format!("{value:.0} /s"),
        Unit::BytesPerS if value >= 1e8 => format!("{:.2} GB/s", value / 1e9),
        Unit::BytesPerS => format!("{:.2} MB/s", value / 1e6),
        Unit::Bytes => format!("{:.1} KiB", value / 1024.0),
    }
}

/// Formats one row: a line for each case and way.
pub(super) fn row(cells: &[Cell]) -> String {
    let head =
        ["", "", "figure", "x plain", "p50", "p90", "p99", "rate", "processor time", "moved"];
    let mut table = Table::new(head);
    let mut cases: Vec<&str> = Vec::new();
    for cell in cells {
        if !cases.contains(&cell.case.as_str()) {
            cases.push(&cell.case);
        }
    }
    for case in cases {
        let here = || cells.iter().filter(move |cell| cell.case == case);
        let plain = here().find(|cell| cell.way == RunMode::Plain).map_or(0.0, |cell| cell.value);
        for (place, cell) in here().enumerate() {
            let name = if place == 0 { case } else { "" };
            table.row(line(name, cell, plain));
        }
    }
    let mut text = table.render();
    for cell in cells {
        let early = cell.returned.iter().filter(|(reason, _)| !ENDS.contains(reason));
        let early: Vec<String> = early.map(|(reason, count)| format!("{reason} {count}")).collect();
        // The counts of a turn are those of all its cases, so they are shown at the first case
        // only.
        let is_first = cells
            .iter()
            .find(|other| other.way == cell.way)
            .is_some_and(|first| first.case == cell.case);
        if is_first && !early.is_empty() {
            let _ = writeln!(
                text,
                "  {}, ends that went home early: {}",
                cell.way.title(),
                early.join(", ")
            );
        }
        if let Some(error) = &cell.error {
            let _ = writeln!(text, "  {}, {}: {error}", cell.case, cell.way.title());
        }
    }
    text
}

fn line(name: &str, cell: &Cell, plain: f64) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let time = |pick: fn(&super::row::Times) -> f64| {
        or_dash(cell.times.as_ref().map(|times| duration(pick(times))))
    };
    let value = if cell.value > 0.0 { figure(cell.unit, cell.value) } else { "-".into() };
    vec![
        name.into(),
        cell.way.title().into(),
        value,
        ratio(cell.value, plain),
        time(|times| times.p50),
        time(|times| times.p90),
        time(|times| times.p99),
        or_dash(cell.rate.map(|rate| figure(Unit::PerS, rate))),
        or_dash(cell.cpu_ns.map(duration)),
        or_dash(cell.moved.map(|moved| moved.to_string())),
    ]
}
