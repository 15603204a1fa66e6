//! `sojourn-bench ipc`: round trips by size, bandwidth, and many clients, beside the hardware's
//! floor and the rivals.
//!
//! Read `row.rs` (the interface of a mechanism), `worker.rs` (the processes of a row) and
//! `measure.rs` (the alternation of rows), then any file of `rivals/`.

mod buffers;
mod floor;
mod many;
pub(crate) mod measure;
pub(crate) mod ours;
mod report;
mod rivals;
pub(crate) mod row;
mod scratch;
mod targets;
mod turn;
pub(crate) mod worker;

use anyhow::{Context as _, Result};
use serde::Serialize;

use self::buffers::BufferCells;
use self::many::ManyCell;
use self::measure::{Cell, ITEM, Settings};
use self::row::{Kind, Mode, Row};
use self::worker::Task;
use crate::machine::Machine;
use crate::os;
use crate::targets::TargetResult;

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    settings: Settings,
    round_trips: Vec<Cell>,
    bandwidth: Vec<Cell>,
    buffers: Vec<BufferCells>,
    many_clients: Vec<ManyCell>,
    #[serde(rename = "reach")]
    targets: Vec<TargetResult>,
}

/// A table of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Calls by size.
    RoundTrips,
    /// Items of 64 KiB, one way and as calls.
    Bandwidth,
    /// Calls whose messages lie badly.
    Buffers,
    /// Many clients on one server.
    ManyClients,
}

/// Restricts a run to parts of the tables, for work on one of them; the default measures
/// everything.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// Measures only this table; may be given several times.
    #[arg(long)]
    part: Vec<Part>,
    /// Measures only rows whose name contains this text, and the floor; may be given several times.
    #[arg(long)]
    row: Vec<String>,
    /// Measures only this way of waiting; may be given several times.
    #[arg(long)]
    mode: Vec<Mode>,
    /// Measures only messages of this many bytes; may be given several times.
    #[arg(long)]
    size: Vec<usize>,
}

impl Choice {
    fn has(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    fn modes(&self, settings: &Settings) -> Vec<Mode> {
        let mut modes = settings.modes();
        modes.retain(|mode| self.mode.is_empty() || self.mode.contains(mode));
        modes
    }

    fn rows(&self, mut rows: Vec<Box<dyn Row>>) -> Vec<Box<dyn Row>> {
        let wanted = |row: &dyn Row| {
            row.kind() == Kind::Floor || self.row.iter().any(|part| row.name().contains(part))
        };
        rows.retain(|row| self.row.is_empty() || wanted(row.as_ref()));
        rows
    }
}

fn settings(quick: bool) -> Result<Settings> {
    let processors = os::processors();
    let first = *processors.first().context("no processor to run on")?;
    let last = *processors.last().context("no processor to run on")?;
    let sizes = [0, 8, 64, 112, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
    Ok(if quick {
        Settings {
            rounds: 2,
            batch_ns: 500_000.0,
            sizes: vec![0, 64, 4 << 10, 64 << 10],
            clients: vec![1, 4],
            processors: [last, first],
            quick,
        }
    } else {
        Settings {
            rounds: 11,
            batch_ns: 8_000_000.0,
            sizes: sizes.to_vec(),
            clients: vec![1, 2, 4, 8, 16, 32, 64],
            processors: [last, first],
            quick,
        }
    })
}

fn rows() -> Vec<Box<dyn Row>> {
    let mut rows: Vec<Box<dyn Row>> =
        vec![Box::new(floor::PingPong), Box::new(floor::Memcpy), Box::new(rivals::FutexWord)];
    rows.extend(ours::all());
    rows.extend(rivals::all());
    rows
}

fn streaming_rows() -> Vec<Box<dyn Row>> {
    ours::streaming().into_iter().chain(rivals::streaming()).collect()
}

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool, choice: &Choice) -> Result<Outcome> {
    // From here on no thread is started: this process forks the workers, and only the thread that
    // calls fork(2) goes on in a child.
    os::die_after(if quick { 120 } else { 1200 });
    os::raise_descriptor_limit();
    let _scratch = scratch::Scratch::new();
    let mut settings = settings(quick)?;
    if !choice.size.is_empty() {
        settings.sizes.clone_from(&choice.size);
    }
    let machine = Machine::here();
    println!("{}", report::head(&machine, &settings));
    let round_trips = match choice.has(Part::RoundTrips) {
        true => round_trips(&settings, choice),
        false => Vec::new(),
    };
    let bandwidth = match choice.has(Part::Bandwidth) {
        true => bandwidth(&settings, choice),
        false => Vec::new(),
    };
    // The quick run checks the other tables, whose rows these are.
    let buffers = match choice.has(Part::Buffers) && !quick {
        true => buffers::measure(&settings, &choice.modes(&settings), || choice.rows(rows())),
        false => Vec::new(),
    };
    let many_clients = match choice.has(Part::ManyClients) {
        true => many::measure(&settings),
        false => Vec::new(),
    };
    if choice.has(Part::ManyClients) {
        println!("{}", report::many(&many_clients));
    }
    let targets = targets::judge(&round_trips, &bandwidth);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome { machine, settings, round_trips, bandwidth, buffers, many_clients, targets })
}

/// Measures the short call alone, of the rows with these names, in all modes.
pub(crate) fn short_calls(quick: bool, names: &[&str]) -> Result<Vec<Cell>> {
    let _scratch = scratch::Scratch::new();
    let settings = settings(quick)?;
    let of = |mode| {
        let mut rows = rows();
        rows.retain(|row| names.contains(&row.name()));
        // The rows of the floor have no bytes, so their size is 0.
        measure::alternate(&rows, mode, &[Task::Call], &[0, SHORT], &settings)
    };
    let cells = settings.modes().into_iter().flat_map(of);
    Ok(cells.filter(|cell| (cell.size == 0) == (cell.kind == Kind::Floor)).collect())
}

/// Bytes of the message of a short call.
const SHORT: usize = 8;

fn round_trips(settings: &Settings, choice: &Choice) -> Vec<Cell> {
    let mut all = Vec::new();
    for mode in choice.modes(settings) {
        let rows = choice.rows(rows());
        let cells = measure::alternate(&rows, mode, &[Task::Call], &settings.sizes, settings);
        println!("{}", report::round_trips(mode, &cells, settings));
        all.extend(cells);
    }
    all
}

fn bandwidth(settings: &Settings, choice: &Choice) -> Vec<Cell> {
    let tasks = [Task::Stream, Task::Call];
    let of = |mode| {
        let rows = choice.rows(streaming_rows());
        measure::alternate(&rows, mode, &tasks, &[ITEM], settings)
    };
    let all: Vec<Cell> = choice.modes(settings).into_iter().flat_map(of).collect();
    println!("{}", report::bandwidth(&all, settings));
    all
}
