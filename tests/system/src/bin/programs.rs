//! Runs the scripts of `programs/` plainly, under Sojourn with its default settings, and with eager
//! moves, and compares the outputs.
//!
//! `programs [--only NAME]... [--jobs N] [--json FILE] [--table FILE]`, called by `cargo xtask
//! programs`, which installs and builds the programs. Each run has a sandbox of its own with a
//! server, ports and a folder, and is ended at its time limit. The table is Markdown. Not here: the
//! scripts, the runs (`sojourn_system::programs`).

use anyhow::{Context, Result, bail};
use serde_json::json;
use sojourn_system::catalog;
use sojourn_system::programs::compare::{Compared, Row, Verdict, compare_all};
use sojourn_system::programs::page::{line, page, tables};
use sojourn_system::world::tools;
use std::process::ExitCode;
use std::sync::Mutex;

struct Options {
    only: Vec<String>,
    /// Number of programs that run at a time.
    jobs: usize,
    json: Option<String>,
    table: Option<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options> {
    let mut options = Options { only: Vec::new(), jobs: 1, json: None, table: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word}: a value is missing"))?;
        match word.as_str() {
            "--only" => options.only.push(value),
            "--jobs" => options.jobs = value.parse().context("--jobs: no number")?,
            "--json" => options.json = Some(value),
            "--table" => options.table = Some(value),
            _ => bail!("no such option: {word}"),
        }
    }
    Ok(options)
}

/// Runs all programs. Returns true if all runs were the same.
fn run() -> Result<bool> {
    let options = options()?;
    let mut all = catalog::all()?;
    if let Some(unknown) = options.only.iter().find(|name| all.iter().all(|one| one.name != **name))
    {
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        bail!("no program {unknown}; there are {}", names.join(", "));
    }
    all.retain(|program| options.only.is_empty() || options.only.contains(&program.name));
    let so_far = Mutex::new(Vec::new());
    let rows = compare_all(all, options.jobs, |row| tell(row, &so_far))?;
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&as_json(&rows))?)?;
    }
    match &options.table {
        Some(file) => std::fs::write(file, page(&rows))?,
        None => println!("{}", tables(&rows)),
    }
    Ok(rows.iter().all(Row::is_same))
}

/// Prints a row, and writes the page of all rows so far, so that a run that is ended early is not
/// for nothing.
fn tell(row: &Row, so_far: &Mutex<Vec<Row>>) {
    eprintln!("   {}", line(row));
    if let Ok(mut rows) = so_far.lock() {
        rows.push(row.clone());
        rows.sort_by(|one, other| one.program.name.cmp(&other.program.name));
        let _ = std::fs::write(tools().join("so-far.md"), page(&rows));
    }
}

fn as_json(rows: &[Row]) -> serde_json::Value {
    let outcome = |Compared { outcome, verdict }: &Compared| {
        let (result, why) = match verdict {
            Verdict::Same => ("same", None),
            Verdict::Unsure(why) => ("unsure", Some(why)),
            Verdict::Differs(why) => ("differs", Some(why)),
        };
        json!({"result": result, "why": why, "seconds": outcome.took.as_secs_f64(), "streams": outcome.streams,
            "kinds": outcome.seen.kinds, "doors": outcome.seen.doors})
    };
    let row = |row: &Row| {
        let classes: Vec<&str> = row.plain.seen.classes.iter().map(|class| class.word()).collect();
        let busy = row.busy.map(|busy| {
            json!({"plain_seconds": busy.plain.as_secs_f64(), "seconds": busy.with.as_secs_f64()})
        });
        json!({"program": row.program.name, "about": row.program.about, "plain_seconds": row.plain.took.as_secs_f64(),
            "classes": classes, "busy": busy, "reasons": row.stays.reasons,
            "default": outcome(&row.default), "eager": outcome(&row.eager)})
    };
    json!({"version": 1, "programs": rows.iter().map(row).collect::<Vec<_>>()})
}
