//! `cargo xtask performance FILE...`: the page of performance figures and its drawing, made from
//! the benchmarks' JSON files.
//!
//! All files must be full runs on one machine. The benchmark that wrote a file is recognized by the
//! file's fields. A cell of the tables is one number: a figure as measured, or the ratio to the
//! plain run, turned so that above 1 is better for every unit. Not here: measuring (`bench`), and
//! the methods (docs/understand/benchmarks.md).

mod plot;
mod tables;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write as _;

const PAGE: &str = "docs/use/performance.md";
const DRAWING: &str = "docs/images/performance.svg";

/// JSON file of one benchmark run.
struct Run {
    path: String,
    value: Value,
}

/// Reads the JSON files, and writes the page and the drawing.
pub(crate) fn write(paths: &[&str]) -> Result<()> {
    let mut runs = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).context((*path).to_owned())?;
        let value = serde_json::from_str(&text).context((*path).to_owned())?;
        runs.push(Run { path: (*path).to_owned(), value });
    }
    let page = page(&runs)?;
    std::fs::write(PAGE, page).context(PAGE)?;
    std::fs::write(DRAWING, plot::draw(&bars(&runs))).context(DRAWING)?;
    eprintln!("   {PAGE}, {DRAWING}");
    Ok(())
}

fn page(runs: &[Run]) -> Result<String> {
    let machine = machine(runs)?;
    let mut text = format!(
        "# Performance\n\nMade by `cargo xtask performance`; do not edit. Measured on {machine}. A figure is a\n\
         median over alternating rounds. *Times as good*: above 1 is better than without Sojourn,\n\
         below 1 is worse. [How it is measured](../understand/benchmarks.md) ·\n\
         [earlier figures, and what was tried](../history/2026-11.md)\n\n\
         ![How many times as good as plain: the tables below have the figures](../images/performance.svg)\n"
    );
    let tables: Vec<String> = runs.iter().filter_map(|run| tables::of(&run.value)).collect();
    if tables.len() != runs.len() {
        bail!("a file has none of the figures of `bench ipc`, `idl`, `local` or `net`");
    }
    text.extend(tables);
    let missed: Vec<String> = runs.iter().flat_map(|run| missed(&run.value)).collect();
    if !missed.is_empty() {
        let _ = write!(text, "\n## Targets that were not reached\n\n{}\n", missed.join("\n"));
    }
    Ok(text)
}

/// Returns the description of the machine on which all runs were made.
///
/// Fails if two runs are of different machines, if a run was a quick one, or without any run.
fn machine(runs: &[Run]) -> Result<String> {
    let mut all: Vec<(String, &str)> = Vec::new();
    for run in runs {
        let machine = &run.value["machine"];
        let of = |name: &str| machine[name].as_str().unwrap_or_default();
        if run.value["settings"]["quick"].as_bool() == Some(true) {
            bail!("{}: a quick run, whose figures mean nothing", run.path);
        }
        let processors = machine["processors"].as_u64().context("no machine in the file")?;
        let name = format!("{}, {processors} processors, Linux {}", of("processor"), of("kernel"));
        all.push((name, &run.path));
    }
    let (first, at) = all.first().context("performance FILE...: no file")?;
    match all.iter().find(|(name, _)| name != first) {
        Some((other, path)) => {
            bail!("{at} is of {first}, but {path} is of {other}: one machine only")
        }
        None => Ok(first.clone()),
    }
}

/// The figures that missed a target, of all sizes of its case.
struct Missed {
    /// The target without the size.
    name: String,
    /// The target of the last figure.
    target: String,
    sizes: usize,
    figures: Vec<String>,
}

impl Missed {
    fn line(&self) -> Option<String> {
        let mut figures = self.figures.clone();
        figures.sort_by(|a, b| number(a).total_cmp(&number(b)));
        match &figures[..] {
            [] => None,
            [one] => Some(format!("* {}: {one}", self.target)),
            [least, .., most] => {
                let (name, count, sizes) = (&self.name, figures.len(), self.sizes);
                Some(format!("* {name}: {least} to {most}, at {count} of {sizes} sizes"))
            }
        }
    }
}

/// Returns the targets that a run missed, as lines of a list: one line for all sizes of a case.
fn missed(run: &Value) -> Vec<String> {
    let mut all: Vec<Missed> = Vec::new();
    for reach in run["reach"].as_array().into_iter().flatten() {
        let text = |name: &str| reach[name].as_str().unwrap_or_default().to_owned();
        let name = without_size(&text("target"));
        let at = all.iter().position(|one| one.name == name).unwrap_or_else(|| {
            all.push(Missed { name, target: String::new(), sizes: 0, figures: Vec::new() });
            all.len() - 1
        });
        all[at].sizes += 1;
        if reach["reached"].as_bool() == Some(false) {
            all[at].target = text("target");
            all[at].figures.push(text("measured"));
        }
    }
    all.iter().filter_map(Missed::line).collect()
}

/// Returns a target's text without the size of its case, a number before `B`, `KiB`, or `MiB`.
fn without_size(target: &str) -> String {
    let words: Vec<&str> = target.split(' ').collect();
    let unit = |word: &str| matches!(word.trim_end_matches(','), "B" | "KiB" | "MiB");
    let at = words.windows(2).position(|pair| pair[0].parse::<u32>().is_ok() && unit(pair[1]));
    let Some(at) = at else { return target.to_owned() };
    let comma = if words[at + 1].ends_with(',') { "," } else { "" };
    let before = words[..at].join(" ");
    [before + comma, words[at + 2..].join(" ")].join(" ")
}

/// Returns the number at the beginning of a figure, for the order of figures.
fn number(figure: &str) -> f64 {
    figure.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::MAX)
}

/// Group of the drawing: its name; the base and the way whose ratio is drawn; the cases with their
/// labels.
type Group = (&'static str, [&'static str; 2], &'static [(&'static str, &'static str)]);

/// Cases of the drawing. Cases in which Sojourn is slower are drawn too.
const DRAWN: [Group; 2] = [
    (
        "two programs of one host",
        ["plain", "sojourn"],
        &[
            ("redis-c1 SET", "Redis, 1 client"),
            ("redis-c50 SET", "Redis, 50 clients"),
            ("redis-c50-P16 SET", "Redis, 50 clients, pipelined"),
            ("iperf3", "iperf3"),
            ("nginx, 16 connections", "nginx, 16 connections"),
            ("pgbench-tcp-c1", "PostgreSQL by TCP, 1 client"),
            ("pgbench-tcp-c8", "PostgreSQL by TCP, 8 clients"),
            ("pgbench-unix-c8", "PostgreSQL by Unix socket, 8 clients"),
            ("connections", "connect, one byte, close"),
        ],
    ),
    (
        "with another host, which has no Sojourn",
        ["kernel", "client"],
        &[
            ("redis-c50 SET", "Redis, 50 clients"),
            ("loss-1%", "bulk with 1 % loss"),
            ("bulk-in", "bulk to the program"),
            ("bulk-out", "bulk from the program"),
            ("sessions-1000", "1,000 sessions"),
        ],
    ),
];

fn bars(runs: &[Run]) -> Vec<(&'static str, Vec<plot::Bar>)> {
    let group = |(name, [base, way], cases): &Group| {
        let bar = |(case, label): &(&str, &str)| {
            let times = runs.iter().find_map(|run| tables::times(&run.value, case, base, way))?;
            Some(plot::Bar { label: (*label).to_owned(), times })
        };
        (*name, cases.iter().filter_map(bar).collect::<Vec<_>>())
    };
    DRAWN.iter().map(group).filter(|(_, bars)| !bars.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(processor: &str, quick: bool) -> Run {
        let cell = |way: &str, value: f64| {
            json!({"row": "redis-c1", "case": "redis-c1 SET", "way": way, "unit": "ns",
                   "value": value, "error": null})
        };
        let value = json!({
            "machine": {"processor": processor, "processors": 2, "kernel": "6.18"},
            "settings": {"quick": quick},
            "cells": [cell("plain", 20_000.0), cell("sojourn", 2_000.0)],
            "reach": [{"target": "a", "measured": "0.5", "reached": false},
                      {"target": "b", "measured": "2", "reached": true},
                      {"target": "c 1 B, x: at most 1 x d", "measured": "1.2", "reached": false},
                      {"target": "c 2 B, x: at most 1 x d", "measured": "1.1", "reached": false},
                      {"target": "c 4 B, x: at most 1 x d", "measured": "0.9", "reached": true}],
        });
        Run { path: processor.into(), value }
    }

    #[test]
    fn the_page_has_the_machine_the_figures_and_what_was_missed() {
        let page = page(&[run("X", false)]).unwrap();
        assert!(page.contains("Measured on X, 2 processors, Linux 6.18."), "{page}");
        assert!(page.contains("| redis-c1 SET | 20.0 µs | 10.0 |"), "{page}");
        assert!(page.contains("* a: 0.5") && !page.contains("* b"), "{page}");
        let sizes = "\n* c, x: at most 1 x d: 1.1 to 1.2, at 2 of 3 sizes\n";
        assert!(page.contains(sizes), "{page}");
        let bars = bars(&[run("X", false)]);
        assert_eq!((bars[0].1[0].label.as_str(), bars[0].1[0].times), ("Redis, 1 client", 10.0));
    }

    #[test]
    fn runs_of_two_machines_and_quick_ones_are_refused() {
        assert!(page(&[run("X", false), run("Y", false)]).is_err());
        assert!(page(&[run("X", true)]).is_err());
        assert!(page(&[]).is_err());
    }
}
