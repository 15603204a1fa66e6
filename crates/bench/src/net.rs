//! `sojourn-bench net`: sessions between two hosts, by the kernel, under Sojourn on one side or
//! both, and by other implementations.
//!
//! Hosts are network namespaces of this machine (`sojourn_lab::net`). Read `row.rs` (what a row
//! is), `world.rs` (hosts, and how it is known where sessions are), `measure.rs` (how ways
//! alternate), then any file of `rows/`. Not here: programs of one host (`local`).

mod cleanup;
mod measure;
mod published;
mod reach;
mod report;
#[cfg(feature = "rivals")]
mod rivals;
mod row;
mod rows;
mod way;
mod world;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use self::measure::{Cell, Settings};
#[cfg(feature = "rivals")]
pub(crate) use self::rivals::smoltcp::main as smoltcp;
use self::way::Stacks;
use self::world::World;
use crate::machine::Machine;
use crate::reach::Reach;

/// Everything one run found out: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    settings: Settings,
    cells: Vec<Cell>,
    reach: Vec<Reach>,
}

/// Which part to measure: everything, unless it says otherwise.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// Only rows whose name contains this; may be given several times.
    #[arg(long)]
    row: Vec<String>,
    /// Only this way, and the kernel's; may be given several times.
    #[arg(long)]
    way: Vec<Stacks>,
    /// At most so many rounds.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only the names of the rows.
    #[arg(long)]
    list: bool,
}

impl Choice {
    fn has(&self, name: &str) -> bool {
        self.row.is_empty() || self.row.iter().any(|part| name.contains(part.as_str()))
    }

    fn has_way(&self, way: Stacks) -> bool {
        way == Stacks::Kernel || self.way.is_empty() || self.way.contains(&way)
    }
}

/// Measures, prints, and returns what goes into the JSON file.
pub(crate) fn run(quick: bool, choice: &Choice) -> Result<Outcome> {
    let machine = Machine::here();
    let mut settings = match quick {
        true => Settings { rounds: 1, turn_ms: 30, quick },
        false => Settings { rounds: 7, turn_ms: 150, quick },
    };
    settings.rounds = choice.rounds.unwrap_or(settings.rounds);
    let rows = rows::all(quick);
    let rows: Vec<_> = rows.into_iter().filter(|row| choice.has(&row.name())).collect();
    if choice.list {
        rows.iter().for_each(|row| println!("{}", row.name()));
        return Ok(Outcome { machine, settings, cells: Vec::new(), reach: Vec::new() });
    }
    if quick && !sojourn_lab::net::is_possible() {
        // The smoke test of a machine without the rights.
        println!("{}", crate::reach::render(&[]));
        return Ok(Outcome { machine, settings, cells: Vec::new(), reach: Vec::new() });
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
    let reach = reach::judge(&cells);
    println!("{}", crate::reach::render(&reach));
    Ok(Outcome { machine, settings, cells, reach })
}
