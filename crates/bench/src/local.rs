//! `sojourn-bench local`: unmodified programs of one host, run plainly, with the kernel's sockmap,
//! and under Sojourn.
//!
//! Read `row.rs` (the interface of a row), `world.rs` (the start of programs in each way) and
//! `measure.rs` (the alternation of the ways), then any file of `rows/`.

mod cleanup;
mod groups;
pub(crate) mod measure;
mod plot;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod row;
pub(crate) mod rows;
pub(crate) mod server;
mod sockmap;
pub(crate) mod targets;
mod way;
mod world;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use self::measure::{Cell, Settings};
use self::way::RunMode;
use self::world::World;
use crate::machine::Machine;
use crate::targets::TargetResult;

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    settings: Settings,
    /// Measurements that this machine does not allow, each with the reason.
    notes: Vec<String>,
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
    /// Measures only this way, and plain; may be given several times.
    #[arg(long)]
    way: Vec<RunMode>,
}

impl Choice {
    fn has(&self, name: &str) -> bool {
        self.row.is_empty() || self.row.iter().any(|part| name.contains(part.as_str()))
    }
}

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool, choice: &Choice) -> Result<Outcome> {
    cleanup::watch(Duration::from_secs(if quick { 120 } else { 1200 }));
    crate::os::raise_descriptor_limit();
    let settings = match quick {
        true => Settings { rounds: 1, turn_ms: 30, quick },
        false => Settings { rounds: 11, turn_ms: 240, quick },
    };
    let machine = Machine::here();
    let world = World::new(&choice.way)?;
    cleanup::note(&world);
    println!("{}", report::head(&machine, &settings, &world.notes));
    let mut cells = Vec::new();
    for row in rows::all(quick).iter().filter(|row| choice.has(row.name())) {
        let measured = measure::alternate(row.as_ref(), &world, &settings);
        if !measured.is_empty() {
            println!("{}", report::row(&measured));
        }
        cells.extend(measured);
    }
    let targets = targets::judge(&cells);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome { machine, settings, notes: world.notes.clone(), cells, targets })
}

/// Draws the results, as files whose names begin with `stem`.
pub(crate) fn plot(outcome: &Outcome, stem: &Path) -> Result<()> {
    plot::all(&outcome.cells, stem)
}
