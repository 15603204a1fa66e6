//! `sojourn-bench ipc`: round trips by size, bandwidth, and many clients, beside the floor and the rivals.
//!
//! Read `row.rs` (what a mechanism offers), `worker.rs` (how its processes are run) and `measure.rs` (how rows
//! alternate), then any file of `rivals/`.

mod floor;
mod many;
pub(crate) mod measure;
pub(crate) mod ours;
mod reach;
mod report;
mod rivals;
pub(crate) mod row;
mod scratch;
mod turn;
pub(crate) mod worker;

use anyhow::{Context as _, Result};
use serde::Serialize;

use self::many::ManyCell;
use self::measure::{Cell, Settings};
use self::row::{Mode, Row};
use self::worker::Task;
use crate::machine::Machine;
use crate::os;
use crate::reach::Reach;

/// Everything one run found out: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    settings: Settings,
    round_trips: Vec<Cell>,
    bandwidth: Vec<Cell>,
    many_clients: Vec<ManyCell>,
    reach: Vec<Reach>,
}

/// Bytes of one message of the bandwidth table.
const ITEM: usize = 64 << 10;

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
            processors: (last, first),
        }
    } else {
        Settings {
            rounds: 11,
            batch_ns: 8_000_000.0,
            sizes: sizes.to_vec(),
            clients: vec![1, 2, 4, 8, 16, 32, 64],
            processors: (last, first),
        }
    })
}

fn rows() -> Vec<Box<dyn Row>> {
    let mut rows: Vec<Box<dyn Row>> =
        vec![Box::new(floor::PingPong), Box::new(floor::Memcpy), Box::new(rivals::Word)];
    rows.extend(ours::all());
    rows.extend(rivals::all());
    rows
}

fn streaming_rows() -> Vec<Box<dyn Row>> {
    ours::streaming().into_iter().chain(rivals::streaming()).collect()
}

/// Measures, prints, and returns what goes into the JSON file.
pub(crate) fn run(quick: bool) -> Result<Outcome> {
    // The coordinator must stay a process of one thread: it forks.
    os::die_after(if quick { 120 } else { 1200 });
    os::raise_descriptor_limit();
    let _scratch = scratch::Scratch::new();
    let settings = settings(quick)?;
    let machine = Machine::here();
    println!("{}", report::head(&machine, &settings));
    let mut round_trips = Vec::new();
    for mode in settings.modes() {
        let cells = measure::alternate(&rows(), mode, &[Task::Call], &settings.sizes, &settings);
        println!("{}", report::round_trips(mode, &cells, &settings));
        round_trips.extend(cells);
    }
    let mut bandwidth = Vec::new();
    for mode in settings.modes() {
        let tasks = [Task::Stream, Task::Call];
        bandwidth.extend(measure::alternate(&streaming_rows(), mode, &tasks, &[ITEM], &settings));
    }
    println!("{}", report::bandwidth(&bandwidth, &settings));
    let many_clients = many::measure(&settings);
    println!("{}", report::many(&many_clients));
    let reach = reach::judge(&round_trips, &bandwidth);
    println!("{}", crate::reach::render(&reach));
    Ok(Outcome { machine, settings, round_trips, bandwidth, many_clients, reach })
}

/// The named mode's cells, for tables that compare within one.
fn of_mode(cells: &[Cell], mode: Mode) -> impl Iterator<Item = &Cell> {
    cells.iter().filter(move |cell| cell.mode == mode)
}
