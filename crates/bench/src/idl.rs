//! `sojourn-bench idl`: what stubs do to arguments, in memory, beside stubs by hand and by others;
//! and the whole call by argument size for copying, referring and in-process stubs.
//!
//! Read `cases.rs` (what is marshalled), `codec.rs` (what a row is), then any file of `codecs/`.

mod calls;
mod cases;
mod codec;
mod codecs;
mod measure;
mod memory;
mod published;
mod reach;
mod report;
mod settings;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use self::calls::CallCell;
use self::measure::Cell;
use self::published::Published;
use self::settings::{Settings, settings};
use crate::machine::Machine;
use crate::os;
use crate::reach::Reach;

/// Everything one run found out: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    settings: Settings,
    marshalling: Vec<Cell>,
    published: Vec<Published>,
    calls: Vec<CallCell>,
    /// Bytes from which `reference_above(auto)` refers.
    reference_threshold: usize,
    /// Bytes from which referring was the faster in this run.
    crossover: Option<usize>,
    reach: Vec<Reach>,
}

/// Runs one cell of the marshalling table `calls` times and prints its sum.
pub(crate) fn repeat(row: &str, case: &str, calls: u64) -> Result<()> {
    let cell = codecs::all().into_iter().find(|s| s.row == row && s.case.title() == case);
    let mut cell = cell.context("no such cell")?;
    sojourn_ipc::rt::set_reference_threshold(usize::MAX);
    println!("{:?}", (cell.run)(calls));
    Ok(())
}

/// Measures, prints, and returns what goes into the JSON file.
pub(crate) fn run(quick: bool) -> Result<Outcome> {
    os::die_after(if quick { 120 } else { 1200 });
    let settings = settings(quick);
    let machine = Machine::here();
    let processors = os::processors();
    println!("{}", report::head(&machine, &settings));
    let calls = calls::measure(&settings)?;
    // After the calls, whose processes are forked from this one and pinned by themselves.
    if let Some(&last) = processors.last() {
        os::pin(last)?;
    }
    let reference_threshold = calls::reference_threshold();
    // All rows have their arguments in the body, wherever this machine's threshold lies.
    sojourn_ipc::rt::set_reference_threshold(usize::MAX);
    let marshalling = measure::alternate(codecs::all(), &settings)?;
    let published = published::table()?;
    ensure!(!marshalling.is_empty(), "no rows");
    println!("{}", report::marshalling(&marshalling));
    println!("{}", report::ratios(&marshalling, &published));
    let crossover = calls::crossover(&calls);
    println!("{}", report::calls(&calls, reference_threshold, crossover));
    let reach = reach::judge(&marshalling);
    println!("{}", crate::reach::render(&reach));
    Ok(Outcome {
        machine,
        settings,
        marshalling,
        published,
        calls,
        reference_threshold,
        crossover,
        reach,
    })
}
