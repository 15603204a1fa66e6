//! `sojourn-bench net`: sessions between two hosts, by the kernel, under Sojourn on one side or
//! both, and by other protocol implementations.
//!
//! Hosts are network namespaces of this machine (`sojourn_lab::net`). Read `row.rs` (the interface
//! of a row), `world.rs` (the hosts, and the check that sessions are away), `measure.rs` (the
//! alternation of the ways), then any file of `rows/`. Not here: programs of one host (`local`).

mod cleanup;
pub(crate) mod measure;
mod published;
mod report;
#[cfg(feature = "rivals")]
mod rivals;
mod row;
mod rows;
mod served;
mod targets;
pub(crate) mod way;
pub(crate) mod world;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use self::measure::Cell;
#[cfg(feature = "rivals")]
pub(crate) use self::rivals::smoltcp::main as smoltcp;
pub(crate) use self::served::main as served;
use self::way::Stacks;
use self::world::World;
use crate::local::measure::Settings;
use crate::machine::Machine;
use crate::targets::TargetResult;

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    settings: Settings,
    cells: Vec<Cell>,
    #[serde(rename = "reach")]
    targets: Vec<TargetResult>,
}

/// Restricts a run to parts; the default measures everything.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// Measures only rows whose name contains this text; may be given several times.
    #[arg(long)]
    row: Vec<String>,
    /// Measures only this way, and the kernel's; may be given several times.
    #[arg(long)]
    way: Vec<Stacks>,
    /// Largest number of rounds.
    #[arg(long)]
    rounds: Option<usize>,
    /// Prints the names of the rows and ends.
    #[arg(long)]
    pub(crate) list: bool,
}

impl Choice {
    fn has(&self, name: &str) -> bool {
        self.row.is_empty() || self.row.iter().any(|part| name.contains(part.as_str()))
    }

    fn rows(&self, quick: bool) -> Vec<Box<dyn row::Row>> {
        rows::all(quick).into_iter().filter(|row| self.has(&row.name())).collect()
    }

    /// Prints the names of the rows. Nothing is measured, and no file written.
    pub(crate) fn print_rows(&self, quick: bool) {
        self.rows(quick).iter().for_each(|row| println!("{}", row.name()));
    }

    fn has_way(&self, way: Stacks) -> bool {
        way == Stacks::Kernel || self.way.is_empty() || self.way.contains(&way)
    }
}

/// Makes signals and the time limit remove hosts and folders before this process ends. To be called
/// while there is only one thread.
pub(crate) fn watch(limit: Duration) {
    cleanup::watch(limit);
}

/// Adds folders to those that are removed.
pub(crate) fn note(folders: Vec<std::path::PathBuf>) {
    cleanup::note(folders);
}

/// Measures the rows that correspond to the papers of 1993. Calls `on_row` with the part of the
/// rows that is done.
pub(crate) fn papers(quick: bool, on_row: impl Fn(f64)) -> Result<Vec<Cell>> {
    let settings = match quick {
        true => Settings { rounds: 1, turn_ms: 30, quick },
        false => Settings { rounds: 5, turn_ms: 150, quick },
    };
    let world = World::new(quick)?;
    let rows = rows::papers(quick);
    let mut cells = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        cells.extend(measure::alternate(row.as_ref(), &world, &settings, |_| true));
        on_row((at + 1) as f64 / rows.len() as f64);
    }
    Ok(cells)
}

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool, choice: &Choice) -> Result<Outcome> {
    let machine = Machine::here();
    let mut settings = match quick {
        true => Settings { rounds: 1, turn_ms: 30, quick },
        false => Settings { rounds: 7, turn_ms: 150, quick },
    };
    settings.rounds = choice.rounds.unwrap_or(settings.rounds);
    let rows = choice.rows(quick);
    if quick && !sojourn_lab::net::is_possible() {
        // A quick run is a smoke test and has to succeed on a machine without the rights to make
        // hosts.
        println!("{}", crate::targets::render(&[]));
        return Ok(Outcome { machine, settings, cells: Vec::new(), targets: Vec::new() });
    }
    cleanup::watch(Duration::from_secs(if quick { 240 } else { 1200 }));
    crate::os::raise_descriptor_limit();
    let world = World::new(quick)?;
    println!("{}", report::head(&machine, &settings));
    let mut cells: Vec<Cell> = Vec::new();
    let mut start = Instant::now();
    for (at, row) in rows.iter().enumerate() {
        let wanted = |way| choice.has_way(way);
        cells.extend(measure::alternate(row.as_ref(), &world, &settings, wanted));
        let is_last = rows.get(at + 1).is_none_or(|next| next.group() != row.group());
        if is_last {
            let here = cells.iter().filter(|cell| cell.group == row.group());
            println!("{}", report::group(row.group(), &here.collect::<Vec<_>>()));
            eprintln!("{}: {:.0} s", row.group(), start.elapsed().as_secs_f64());
            start = Instant::now();
        }
    }
    let targets = targets::judge(&cells);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome { machine, settings, cells, targets })
}
