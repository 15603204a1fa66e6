//! The tables of `sojourn-bench net` as text. Not here: any measurement (`measure.rs`).

use std::fmt::Write as _;

use super::measure::Cell;
use super::published;
use super::targets::target;
use super::way::{Stacks, Wait};
use super::world::CONGESTION;
use crate::local::measure::Settings;
use crate::local::report::{ENDS, figure};
use crate::local::row::Unit;
use crate::machine::Machine;
use crate::table::{Table, duration, ratio};

/// Formats the heading: machine, kernel, rounds, hosts.
pub(super) fn head(machine: &Machine, settings: &Settings) -> String {
    format!(
        "Sojourn, sessions between two hosts: {}, {} processors, Linux {}, load {:.2}\n\
         up to {} rounds of {} ms for each case; medians over rounds; ratios to the kernel in the same run\n\
         hosts are network namespaces, the link a veth pair with its offloads, congestion control {CONGESTION}\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load,
        settings.rounds,
        settings.turn_ms,
    )
}

/// Formats the table of a group, the corresponding published table, and the failures.
pub(super) fn group(name: &str, cells: &[&Cell]) -> String {
    let is_by_waiting = cells.iter().any(|cell| cell.wait != Wait::Default);
    let mut text = if is_by_waiting { by_waiting(cells) } else { lines(cells) };
    if let Some(published) = published::beside(name) {
        let _ = write!(text, "\n{published}");
    }
    for cell in cells {
        if !cell.was_away() {
            let part = cell.away.unwrap_or(0.0) * 100.0;
            let _ = writeln!(
                text,
                "  NOT AWAY FROM THE KERNEL: {}, {}, {:?}: {part:.0} % of its sessions were; no figure",
                cell.case,
                cell.way.title(),
                cell.wait
            );
        }
    }
    text + &notes(cells)
}

/// Formats errors, and ends that came home early, each once.
fn notes(cells: &[&Cell]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for cell in cells {
        let early = cell.returned.iter().filter(|(reason, _)| !ENDS.contains(reason));
        let early: Vec<String> = early.map(|(reason, count)| format!("{reason} {count}")).collect();
        if !early.is_empty() {
            let early = early.join(", ");
            lines.push(format!(
                "  {}, {}, ends that went home early: {early}",
                cell.row,
                cell.way.title()
            ));
        }
        if let Some(error) = &cell.error {
            lines.push(format!("  {}, {}: {error}", cell.row, cell.way.title()));
        }
    }
    lines.dedup();
    lines.into_iter().fold(String::new(), |text, line| text + &line + "\n")
}

/// Returns the names of the cases, in their order.
fn cases<'c>(cells: &[&'c Cell]) -> Vec<&'c str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.values.is_empty()) {
        if !names.contains(&cell.case.as_str()) {
            names.push(&cell.case);
        }
    }
    names
}

fn find<'c>(cells: &[&'c Cell], case: &str, way: Stacks, wait: Wait) -> Option<&'c Cell> {
    let fits = |cell: &&&Cell| cell.case == case && cell.way == way && cell.wait == wait;
    cells.iter().find(fits).copied()
}

fn value(cell: Option<&Cell>) -> f64 {
    cell.filter(|cell| cell.counts()).map_or(0.0, |cell| cell.value)
}

fn shown(cell: Option<&Cell>) -> String {
    match cell {
        Some(cell) if !cell.was_away() => "NOT AWAY".into(),
        Some(cell) if cell.counts() => figure(cell.unit, cell.value),
        _ => "-".into(),
    }
}

fn percent(cell: Option<&Cell>) -> String {
    let part = cell.and_then(|cell| cell.away);
    part.map_or_else(|| "-".into(), |part| format!("{:.0} %", part * 100.0))
}

fn cpu(cell: Option<&Cell>) -> String {
    let Some(ns) = cell.filter(|cell| cell.counts()).and_then(|cell| cell.cpu_ns) else {
        return "-".into();
    };
    match cell.map(|cell| cell.unit) {
        Some(Unit::BytesPerS) => format!("{}/KiB", duration(ns)),
        _ => duration(ns),
    }
}

/// Formats a table with columns for both ways of waiting.
fn by_waiting(cells: &[&Cell]) -> String {
    let head = [
        "",
        "",
        "blocking",
        "x kernel",
        "p99",
        "CPU",
        "away",
        "spinning",
        "x kernel",
        "x kernel blocking",
        "p99",
        "CPU",
        "away",
    ];
    let mut table = Table::new(head);
    for case in cases(cells) {
        let of = |way, wait| find(cells, case, way, wait);
        let asleep = value(of(Stacks::Kernel, Wait::Blocking));
        let awake = value(of(Stacks::Kernel, Wait::Spinning));
        let mut name = case;
        // These contain the ways of UDP.
        for &way in Stacks::ROUND_TRIPS_TCP {
            let (blocking, spinning) = (of(way, Wait::Blocking), of(way, Wait::Spinning));
            if blocking.or(spinning).is_none() {
                continue;
            }
            let p99 = |cell: Option<&Cell>| {
                let times = cell.filter(|cell| cell.counts()).and_then(|cell| cell.times);
                times.map_or_else(|| "-".into(), |times| duration(times.p99))
            };
            table.row([
                name.to_owned(),
                way.title().into(),
                shown(blocking),
                ratio(value(blocking), asleep),
                p99(blocking),
                cpu(blocking),
                percent(blocking),
                shown(spinning),
                ratio(value(spinning), awake),
                ratio(value(spinning), asleep),
                p99(spinning),
                cpu(spinning),
                percent(spinning),
            ]);
            name = "";
        }
    }
    table.render()
}

/// Formats a table with a line for each case and way.
fn lines(cells: &[&Cell]) -> String {
    let head = ["", "", "figure", "x kernel", "target", "p50", "p99", "rate", "CPU", "away"];
    let mut table = Table::new(head);
    for case in cases(cells) {
        let kernel = value(find(cells, case, Stacks::Kernel, Wait::Default));
        let mut name = case;
        for cell in cells.iter().filter(|cell| cell.case == case) {
            let times = cell.times.filter(|_| cell.counts());
            let time = |pick: fn(&crate::local::row::Times) -> f64| {
                times.as_ref().map_or_else(|| "-".into(), |times| duration(pick(times)))
            };
            let rate = cell.rate.filter(|_| cell.counts() && cell.unit != Unit::BytesPerS);
            table.row([
                name.to_owned(),
                cell.way.title().into(),
                shown(Some(cell)),
                ratio(value(Some(cell)), kernel),
                target(cell).map_or_else(|| "-".into(), |target| target.to_string()),
                time(|times| times.p50),
                time(|times| times.p99),
                rate.map_or_else(|| "-".into(), |rate| figure(Unit::PerS, rate)),
                cpu(Some(cell)),
                percent(Some(cell)),
            ]);
            name = "";
        }
    }
    table.render()
}
