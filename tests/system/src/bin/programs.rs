//! Runs the scripts of `programs/` plainly, under Sojourn with its default settings, and with eager
//! moves, and compares the outputs.
//!
//! `programs [--only NAME]... [--jobs N] [--json FILE] [--table FILE]`, called by `cargo xtask
//! programs`, which installs and builds the programs. Each run has a sandbox of its own with a
//! server, ports and a folder, and is ended at its time limit. The server's counters tell how many
//! streams moved; their kinds are looked up while the script runs. The table is Markdown. Not here:
//! the scripts.

use anyhow::{Context, Result, bail};
use serde_json::json;
use sojourn_lab::{Mode, Running};
use sojourn_session::KindT;
use sojourn_system::Admin;
use sojourn_system::catalog::{self, Program};
use sojourn_system::world::World;
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two questions to the server about sessions that are away.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// The way in which a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunMode {
    Plain,
    Default,
    Eager,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The script ended: its output and its status.
    Said(String),
    /// The script was ended at its time limit.
    Hung,
}

/// The result of one run.
#[derive(Clone, Debug)]
struct Outcome {
    end: End,
    took: Duration,
    /// Number of streams made; below, the number of those that were seen, by kind.
    streams: u64,
    kinds: HashMap<&'static str, usize>,
    left_behind: usize,
}

/// The result of a run compared with the plain one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// Different once; the second run was the same.
    Unsure(String),
    Differs(String),
}

struct Row {
    program: Program,
    plain: Outcome,
    /// The runs with default settings and with eager moves.
    with: [Compared; 2],
}

/// A run that was compared with the plain one.
struct Compared {
    outcome: Outcome,
    verdict: Verdict,
}

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
    let rows = compare_all(all, options.jobs)?;
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&as_json(&rows))?)?;
    }
    let table = table(&rows);
    match &options.table {
        Some(file) => std::fs::write(file, page(&rows, &table))?,
        None => println!("{table}"),
    }
    Ok(rows.iter().all(|row| row.with.iter().all(|run| run.verdict == Verdict::Same)))
}

/// Returns the rows of all programs, in their order; runs `jobs` programs at a time.
fn compare_all(all: Vec<Program>, jobs: usize) -> Result<Vec<Row>> {
    let count = all.len();
    let left = Mutex::new(all.into_iter().enumerate());
    let rows = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = left.lock().ok().and_then(|mut left| left.next());
            let Some((number, program)) = next else { return Ok(()) };
            let (name, about) = (program.name.clone(), program.about.clone());
            eprintln!("── {} of {count}: {name}: {about}", number + 1);
            let row = compare(program).with_context(|| name.clone())?;
            eprintln!("   {name}: {}", line(&row));
            if let Ok(mut rows) = rows.lock() {
                rows.push((number, row));
            }
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        all.into_iter()
            .try_for_each(|job| job.join().unwrap_or_else(|_| bail!("a job has panicked")))
    })?;
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(number, _)| *number);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn compare(program: Program) -> Result<Row> {
    let plain = once(&program, RunMode::Plain)?;
    let against = |way| -> Result<Compared> {
        let first = once(&program, way)?;
        let Some(difference) = difference(&plain, &first) else {
            return Ok(Compared { outcome: first, verdict: Verdict::Same });
        };
        eprintln!("   {way:?}: {difference}; once more");
        let outcome = once(&program, way)?;
        let verdict = match self::difference(&plain, &outcome) {
            None => Verdict::Unsure(difference),
            Some(difference) => Verdict::Differs(difference),
        };
        Ok(Compared { outcome, verdict })
    };
    let with = [against(RunMode::Default)?, against(RunMode::Eager)?];
    Ok(Row { program, plain, with })
}

fn once(program: &Program, way: RunMode) -> Result<Outcome> {
    let mode = if way == RunMode::Plain { Mode::Plain } else { Mode::Sojourn };
    let mut world = World::new(mode)?;
    if way == RunMode::Eager {
        world.sandbox.set("MOVE_AFTER_CALLS", "0");
    }
    let command = world.script(&format!("{}.sh", program.name))?;
    let mut admin = Admin::new(&world.sandbox)?;
    let start = Instant::now();
    let running = Running::start(command)?;
    let is_over = AtomicBool::new(false);
    let (finished, took, kinds) = std::thread::scope(|scope| {
        let looker = scope.spawn(|| kinds_seen(&mut admin, &is_over));
        let finished = running.finish(program.limit);
        let took = start.elapsed();
        is_over.store(true, Ordering::SeqCst);
        (finished, took, looker.join().unwrap_or_default())
    });
    let streams = Admin::new(&world.sandbox)?.moves()?.joins;
    let folder = world.sandbox.folder().to_string_lossy().into_owned();
    let end = match finished {
        Ok(finished) => {
            let output = format!("{}{}status {}", finished.out, finished.err, finished.status);
            End::Said(output.replace(&folder, "FOLDER"))
        }
        Err(_) => End::Hung,
    };
    let left_behind = if end == End::Hung { 0 } else { world.left_behind().len() };
    Ok(Outcome { end, took, streams, kinds, left_behind })
}

/// Counts by kind the streams that existed at some look.
fn kinds_seen(admin: &mut Admin, is_over: &AtomicBool) -> HashMap<&'static str, usize> {
    let mut seen = HashMap::new();
    while !is_over.load(Ordering::SeqCst) {
        for session in admin.away().unwrap_or_default() {
            seen.insert(session.stream, session.kind);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let mut kinds = HashMap::new();
    for kind in seen.into_values() {
        let name = match kind {
            KindT::Tcp => "tcp",
            KindT::Unix => "unix",
            KindT::Pipe => "pipe",
            _ => "udp",
        };
        *kinds.entry(name).or_default() += 1;
    }
    kinds
}

/// Describes the first difference in a few words; `None` if the runs are the same.
fn difference(plain: &Outcome, with: &Outcome) -> Option<String> {
    let (plain_said, output) = match (&plain.end, &with.end) {
        (End::Hung, _) => return Some("hangs plainly".into()),
        (_, End::Hung) => return Some("hangs".into()),
        (End::Said(plain), End::Said(output)) => (plain, output),
    };
    if !plain_said.ends_with("status 0") {
        let last: Vec<&str> = plain_said.lines().rev().take(4).collect();
        return Some(format!(
            "fails plainly: {}",
            last.into_iter().rev().collect::<Vec<_>>().join(" / ")
        ));
    }
    if plain_said != output {
        let mut pairs = plain_said.lines().zip(output.lines());
        let (plain, output) =
            pairs.find(|(plain, output)| plain != output).unwrap_or(("", "more or less lines"));
        return Some(format!("says {output:?}, plainly {plain:?}"));
    }
    let left = with.left_behind;
    (left > plain.left_behind).then(|| format!("leaves {left} processes behind"))
}

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Same => "same".into(),
        Verdict::Unsure(why) => format!("**once of two: {}**", cell(why)),
        Verdict::Differs(why) => format!("**differs: {}**", cell(why)),
    }
}

/// Shortens and escapes text for a cell of a table.
fn cell(text: &str) -> String {
    let short: String = text.chars().take(160).collect();
    short.replace('|', "\\|").replace('\n', " ")
}

fn moved(outcome: &Outcome) -> String {
    let kinds = ["tcp", "unix", "pipe", "udp"];
    let seen: Vec<String> = kinds
        .iter()
        .filter_map(|kind| Some(format!("{} {kind}", outcome.kinds.get(kind)?)))
        .collect();
    match (outcome.streams, seen.is_empty()) {
        (0, _) => "–".into(),
        (streams, true) => streams.to_string(),
        (streams, false) => format!("{streams} (seen: {})", seen.join(", ")),
    }
}

fn ratio(row: &Row, outcome: &Outcome) -> f64 {
    outcome.took.as_secs_f64() / row.plain.took.as_secs_f64().max(1e-3)
}

fn line(row: &Row) -> String {
    let [default, eager] = &row.with;
    format!(
        "default {} ({:.2}, {}), eager {} ({:.2}, {}), plain {:.1} s",
        word(&default.verdict),
        ratio(row, &default.outcome),
        moved(&default.outcome),
        word(&eager.verdict),
        ratio(row, &eager.outcome),
        moved(&eager.outcome),
        row.plain.took.as_secs_f64()
    )
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| program | what it does | by default | moved | time | eager | moved | time | plain (s) |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let [default, eager] = &row.with;
        text += &format!(
            "| {} | {} | {} | {} | {:.2} | {} | {} | {:.2} | {:.1} |\n",
            row.program.name,
            cell(&row.program.about),
            word(&default.verdict),
            moved(&default.outcome),
            ratio(row, &default.outcome),
            word(&eager.verdict),
            moved(&eager.outcome),
            ratio(row, &eager.outcome),
            row.plain.took.as_secs_f64()
        );
    }
    text
}

fn page(rows: &[Row], table: &str) -> String {
    let is_same = |row: &&Row| row.with.iter().all(|run| run.verdict == Verdict::Same);
    let same = rows.iter().filter(is_same).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "# Programs\n\n\
         Made by `cargo xtask programs`; do not edit. Each program is run by a script of `tests/system/programs/` three times: plainly, under `sojourn run` with\n\
         default settings, and with `--move-after-calls 0`. What it prints (results, checksums, exit statuses) must be the same, and no process may be left. A run that differs is\n\
         made once more.\n\n\
         *Moved*: streams that the session server has made, and in brackets of which kind those were that could be seen while they lasted. *Time*: as a multiple of the plain\n\
         run's, waiting and start-up included. The times are of one run on one machine (Linux {}, {processors} processors) that does other work, too; they tell a hang or a crawl from\n\
         normal, and no more: docs/understand/benchmarks.md has measurements.\n\n\
         {} programs, of which {same} do the same both ways.\n\n{table}",
        kernel.join("."),
        rows.len()
    )
}

fn as_json(rows: &[Row]) -> serde_json::Value {
    let outcome = |Compared { outcome, verdict }: &Compared| {
        let (result, why) = match verdict {
            Verdict::Same => ("same", None),
            Verdict::Unsure(why) => ("unsure", Some(why)),
            Verdict::Differs(why) => ("differs", Some(why)),
        };
        json!({"result": result, "why": why, "seconds": outcome.took.as_secs_f64(), "streams": outcome.streams, "kinds": outcome.kinds})
    };
    let row = |row: &Row| {
        json!({"program": row.program.name, "about": row.program.about, "plain_seconds": row.plain.took.as_secs_f64(),
            "default": outcome(&row.with[0]), "eager": outcome(&row.with[1])})
    };
    json!({"version": 1, "programs": rows.iter().map(row).collect::<Vec<_>>()})
}
