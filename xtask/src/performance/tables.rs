//! Tables of the page of performance figures, made from one benchmark's JSON.
//!
//! Not here: the runs that go on one page, and the drawing.

use serde_json::Value;
use std::fmt::Write as _;

/// Endings of rows of `bench local` that the page leaves out: they are points of a curve, for which
/// the JSON is the better source.
const LEFT_OUT: [&str; 2] = ["-buffers", "-paces"];

/// Returns the tables of a run, or `None` if the JSON is of no known benchmark.
pub(super) fn of(run: &Value) -> Option<String> {
    let has = |way: &str| cells(run).any(|cell| cell["way"] == way);
    if has("plain") {
        let head = "\n## Two programs of one host (`bench local`)\n";
        return Some(format!("{head}\n{}", ways(run, "plain", &["sojourn", "sockmap"])));
    }
    if has("kernel") {
        let head = "\n## Sessions between two hosts (`bench net`)\n\n\
                    `client`: only the client's host has Sojourn; `both`: both hosts; `port`: as `client`,\n\
                    for a program without any right.\n";
        return Some(format!("{head}\n{}", ways(run, "kernel", &["client", "both", "port"])));
    }
    if run["round_trips"].is_array() {
        return Some(format!("\n## Calls over the IPC (`bench ipc`)\n{}", calls(run)));
    }
    let is_idl = run["marshalling"].is_array();
    is_idl.then(|| format!("\n## Generated stubs (`bench idl`)\n\n{}", stubs(run)))
}

fn cells(run: &Value) -> impl Iterator<Item = &Value> {
    run["cells"].as_array().into_iter().flatten()
}

fn text<'a>(cell: &'a Value, name: &str) -> &'a str {
    cell[name].as_str().unwrap_or_default()
}

/// Returns the figure of a cell.
///
/// A cell that failed has none. Neither has a cell whose session was accelerated for less than nine
/// tenths of the run, because such a figure is mostly the kernel's.
fn figure(cell: &Value) -> Option<f64> {
    let was_away = cell["away"].as_f64().is_none_or(|part| part >= 0.9);
    let value = cell["value"].as_f64().filter(|value| *value > 0.0)?;
    (cell["error"].is_null() && was_away).then_some(value)
}

/// A case, with its way of waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Case<'a> {
    name: &'a str,
    wait: &'a str,
}

/// Returns each case with its way of waiting once, in the order of the run.
fn cases(run: &Value) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for cell in cells(run) {
        let row = text(cell, "row");
        let case = Case { name: text(cell, "case"), wait: text(cell, "wait") };
        if !LEFT_OUT.iter().any(|end| row.ends_with(end)) && !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

fn cell<'a>(run: &'a Value, case: Case<'_>, way: &str) -> Option<&'a Value> {
    cells(run).find(|cell| {
        text(cell, "case") == case.name
            && text(cell, "wait") == case.wait
            && text(cell, "way") == way
    })
}

/// Returns the ratio of a case in the way `way` to the case in the way `base`; above 1 is better.
///
/// Of a case with several ways of waiting, the first in the run is taken.
pub(super) fn times(run: &Value, case: &str, base: &str, way: &str) -> Option<f64> {
    let case = cases(run).into_iter().find(|one| one.name == case)?;
    beside(run, case, base, way)
}

fn beside(run: &Value, case: Case<'_>, base: &str, way: &str) -> Option<f64> {
    let (plain, ours) = (cell(run, case, base)?, cell(run, case, way)?);
    let is_smaller_better = matches!(text(plain, "unit"), "ns" | "bytes");
    let ratio = figure(ours)? / figure(plain)?;
    Some(if is_smaller_better { 1.0 / ratio } else { ratio })
}

/// Returns a table with a line for each case: the figure of `base`, and the ratio of each way.
fn ways(run: &Value, base: &str, ways: &[&str]) -> String {
    let mut table = format!("| times as good as `{base}` | {base} | {} |\n", ways.join(" | "));
    table.push_str(&format!("|---|---|{}\n", "---|".repeat(ways.len())));
    for case in cases(run) {
        let Some(plain) = cell(run, case, base) else { continue };
        let Some(value) = figure(plain) else { continue };
        let name = match case.wait {
            "" | "default" => case.name.to_owned(),
            wait => format!("{}, {wait}", case.name),
        };
        let _ = write!(table, "| {name} | {} |", with_unit(text(plain, "unit"), value));
        for way in ways {
            let times = beside(run, case, base, way).map_or("–".into(), short);
            let _ = write!(table, " {times} |");
        }
        table.push('\n');
    }
    table
}

/// Formats a number with three significant digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn with_unit(unit: &str, value: f64) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let last = steps.last().copied().unwrap_or((1.0, ""));
        let (step, name) = steps.iter().copied().find(|(step, _)| value >= *step).unwrap_or(last);
        format!("{} {name}", short(value / step))
    };
    match unit {
        "ns" => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
        "per_s" => scaled(&[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]),
        "bytes_per_s" => scaled(&[(1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")]),
        _ => scaled(&[(1024.0 * 1024.0, "MiB"), (1024.0, "KiB"), (1.0, "B")]),
    }
}

/// Mechanisms in the tables of calls: the IPC and those that it is compared with.
const MECHANISMS: [&str; 4] = ["sojourn", "futex + shared memory", "pipe", "unix stream socket"];
const MODES: [(&str, &str); 3] = [
    ("spin_two", "spinning on two processors"),
    ("block_two", "sleeping on two processors"),
    ("block_one", "sleeping on one processor"),
];

/// Returns a table for each way of waiting: the time of a call for each size and mechanism.
fn calls(run: &Value) -> String {
    let all = run["round_trips"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text_out = String::new();
    for (mode, name) in MODES {
        let here =
            || all.iter().filter(move |cell| cell["mode"] == mode && cell["one_way"] == false);
        let mut sizes: Vec<u64> = here().filter_map(|cell| cell["size"].as_u64()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            continue;
        }
        let _ = write!(
            text_out,
            "\nTime of a call, {name}:\n\n| bytes | {} |\n",
            MECHANISMS.join(" | ")
        );
        text_out.push_str(&format!("|---|{}\n", "---|".repeat(MECHANISMS.len())));
        for size in sizes {
            let _ = write!(text_out, "| {size} |");
            for row in MECHANISMS {
                let fits = |cell: &&Value| text(cell, "row") == row && cell["size"] == size;
                let ns = here().find(fits).and_then(|cell| cell["ns"].as_f64());
                let ns = ns.filter(|ns| *ns > 0.0).map_or("–".into(), |ns| with_unit("ns", ns));
                let _ = write!(text_out, " {ns} |");
            }
            text_out.push('\n');
        }
    }
    text_out
}

/// Returns the table of the time to marshal a call: a line for each row, a column for each case.
fn stubs(run: &Value) -> String {
    let all = run["marshalling"].as_array().map(Vec::as_slice).unwrap_or_default();
    let once = |name: &str| {
        let mut names: Vec<&str> = Vec::new();
        for cell in all {
            if !names.contains(&text(cell, name)) {
                names.push(text(cell, name));
            }
        }
        names
    };
    let cases = once("case");
    let mut table = format!("| time of a call in memory | {} |\n", cases.join(" | "));
    table.push_str(&format!("|---|{}\n", "---|".repeat(cases.len())));
    for row in once("row") {
        let _ = write!(table, "| {row} |");
        for case in &cases {
            let fits = |cell: &&Value| text(cell, "row") == row && text(cell, "case") == *case;
            let ns = all.iter().find(fits).and_then(|cell| cell["ns"].as_f64());
            let ns = ns.filter(|ns| *ns > 0.0).map_or("–".into(), |ns| with_unit("ns", ns));
            let _ = write!(table, " {ns} |");
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn better_is_above_one_whatever_the_unit() {
        let cell = |case: &str, unit: &str, way: &str, value: f64| json!({"row": "r", "case": case, "way": way, "unit": unit, "value": value, "error": null});
        let run = json!({"cells": [
            cell("time", "ns", "plain", 10.0), cell("time", "ns", "sojourn", 5.0),
            cell("rate", "per_s", "plain", 10.0), cell("rate", "per_s", "sojourn", 5.0),
        ]});
        assert_eq!(times(&run, "time", "plain", "sojourn"), Some(2.0));
        assert_eq!(times(&run, "rate", "plain", "sojourn"), Some(0.5));
    }

    #[test]
    fn what_was_not_away_and_what_failed_has_no_figure() {
        let cell = |way: &str, away: Option<f64>, error: Option<&str>| {
            json!({"row": "bulk-in", "case": "bulk-in", "way": way, "wait": "default",
                   "unit": "bytes_per_s", "value": 2e9, "away": away, "error": error})
        };
        let run = json!({"cells": [cell("kernel", None, None), cell("client", Some(0.5), None),
                                   cell("both", Some(1.0), Some("no")), cell("port", Some(1.0), None)]});
        let table = of(&run).unwrap();
        assert!(table.contains("| bulk-in | 2.00 GB/s | – | – | 1.00 |"), "{table}");
    }

    #[test]
    fn calls_and_stubs_have_their_tables() {
        let ipc = json!({"round_trips": [{"row": "pipe", "mode": "spin_two", "size": 64,
                                          "one_way": false, "ns": 2_500.0}]});
        assert!(of(&ipc).unwrap().contains("| 64 | – | – | 2.50 µs | – |"));
        let idl = json!({"marshalling": [{"row": "ours", "case": "tree", "ns": 303.0}]});
        assert!(of(&idl).unwrap().contains("| ours | 303 ns |"));
        assert!(of(&json!({})).is_none());
    }
}
