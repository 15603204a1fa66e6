//! `sojourn-bench idl`: the cost of marshalling in memory, beside hand-written stubs and other
//! generators; and the cost of a whole call by argument size, for stubs that copy, that refer, and
//! that stay in one process.
//!
//! Read `cases.rs` (the marshalled arguments), `codec.rs` (the interface of a row), then any file
//! of `codecs/`.

mod calls;
mod cases;
mod codec;
mod codecs;
mod link;
mod looped;
mod measure;
mod memory;
mod published;
mod report;
mod settings;
mod targets;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use self::calls::CallCell;
pub(crate) use self::calls::{COPIED, REFERRED};
use self::cases::Case;
pub(crate) use self::looped::LOOPED;
use self::measure::Cell;
use self::published::Published;
use self::settings::{Settings, settings};
use crate::machine::Machine;
use crate::os;
use crate::targets::TargetResult;

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    settings: Settings,
    marshalling: Vec<Cell>,
    published: Vec<Published>,
    calls: Vec<CallCell>,
    /// Bytes from which stubs with `reference_above(auto)` refer to an argument.
    reference_threshold: usize,
    /// Bytes from which referring was faster than copying in this run.
    crossover: Option<usize>,
    #[serde(rename = "reach")]
    targets: Vec<TargetResult>,
}

/// Runs one cell of the marshalling table `calls` times and prints its sum, for a profiler.
pub(crate) fn repeat(row: &str, case: &str, calls: u64) -> Result<()> {
    let cell = codecs::all().into_iter().find(|s| s.row == row && s.case.title() == case);
    let mut cell = cell.context("no such cell")?;
    sojourn_ipc::rt::set_reference_threshold(usize::MAX);
    println!("{:?}", (cell.run)(calls));
    Ok(())
}

/// The figures that correspond to those of Reuther, Uhlig and Aigner 2000 (`published.rs`).
#[derive(Debug)]
pub(crate) struct Paper {
    /// The paper's function, in every row.
    pub(crate) marshalling: Vec<Cell>,
    /// The paper's figure 5.
    pub(crate) calls: Vec<CallCell>,
    /// Bytes from which referring was faster than copying.
    pub(crate) crossover: Option<usize>,
}

/// Measures [`Paper`]. A thread of its own is pinned, and the reference threshold is restored, so
/// that the caller's processors and threshold stay as they were.
pub(crate) fn paper(quick: bool) -> Result<Paper> {
    let settings = settings(quick);
    let calls = calls::measure(&settings)?;
    let crossover = calls::crossover(&calls);
    let threshold = calls::reference_threshold();
    sojourn_ipc::rt::set_reference_threshold(usize::MAX);
    let measure = || -> Result<Vec<Cell>> {
        if let Some(&last) = os::processors().last() {
            os::pin(last)?;
        }
        let mut subjects = codecs::all();
        subjects.retain(|subject| subject.case == Case::Paper);
        measure::alternate(subjects, &settings)
    };
    let joined = std::thread::scope(|scope| scope.spawn(measure).join());
    sojourn_ipc::rt::set_reference_threshold(threshold);
    let marshalling = joined.map_err(|_| anyhow::anyhow!("a marshalling row panicked"))??;
    Ok(Paper { marshalling, calls, crossover })
}

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool) -> Result<Outcome> {
    os::die_after(if quick { 120 } else { 1200 });
    let settings = settings(quick);
    let machine = Machine::here();
    let processors = os::processors();
    println!("{}", report::head(&machine, &settings));
    let calls = calls::measure(&settings)?;
    // Only now: the processes of the calls are forked from this one and pin themselves.
    if let Some(&last) = processors.last() {
        os::pin(last)?;
    }
    let reference_threshold = calls::reference_threshold();
    // No argument is long enough to be referred to, so all rows have their arguments in the body.
    sojourn_ipc::rt::set_reference_threshold(usize::MAX);
    let marshalling = measure::alternate(codecs::all(), &settings)?;
    let published = published::table()?;
    ensure!(!marshalling.is_empty(), "no rows");
    println!("{}", report::marshalling(&marshalling));
    println!("{}", report::ratios(&marshalling, &published));
    let crossover = calls::crossover(&calls);
    println!("{}", report::calls(&calls, reference_threshold, crossover));
    let targets = targets::judge(&marshalling);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome {
        machine,
        settings,
        marshalling,
        published,
        calls,
        reference_threshold,
        crossover,
        targets,
    })
}
