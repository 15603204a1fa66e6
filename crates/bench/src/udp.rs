//! `sojourn-bench udp`: round trips of datagrams through the UDP server of 1992, beside the
//! kernel's UDP, over the loopback interface of this host.
//!
//! The rows are those of the paper's table 1 that can be built here; `world` has the processes of
//! each. Ways take turns within a round, and a cell is the median of its rounds. The best placement
//! depends on the number of threads that have to run at a time. So every way is measured with its
//! ends on one processor, on two, and with all its processes on one, and is judged by its best
//! placement.

pub(crate) mod world;

use anyhow::Result;
use serde::Serialize;

use self::world::{Placement, Trial, UdpStacks, Waiting};
use crate::machine::Machine;
use crate::stats::median;
use crate::table::{Table, duration, ratio};
use crate::targets::TargetResult;

/// One way with one way of waiting, placement and size.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) way: UdpStacks,
    pub(crate) placement: Placement,
    pub(crate) waiting: Waiting,
    pub(crate) bytes: usize,
    /// Median of the rounds, in nanoseconds per round trip; `None` if it could not be measured.
    pub(crate) ns: Option<f64>,
    /// The nanoseconds per round trip of each round.
    pub(crate) rounds: Vec<f64>,
}

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    real_time: bool,
    cells: Vec<Cell>,
    #[serde(rename = "reach")]
    targets: Vec<TargetResult>,
}

/// Options of a run.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// Runs before all other processes (SCHED_FIFO), for some ten seconds: for a machine that
    /// others use at the same time. Needs CAP_SYS_NICE.
    #[arg(long)]
    real_time: bool,
}

pub(crate) const SIZES: [usize; 2] = [1, 1024];

/// How much is measured.
struct Extent {
    rounds: usize,
    /// Round trips in each round.
    trips: u32,
}

fn extent(quick: bool) -> Extent {
    match quick {
        true => Extent { rounds: 1, trips: 20 },
        false => Extent { rounds: 15, trips: 400 },
    }
}

/// Measures without printing.
pub(crate) fn cells(quick: bool) -> Vec<Cell> {
    let Extent { rounds, trips } = extent(quick);
    let of = |waiting| {
        SIZES.map(|bytes| alternate(&Trial { waiting, bytes, trips }, rounds)).into_iter().flatten()
    };
    Waiting::ALL.into_iter().flat_map(of).collect()
}

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool, choice: &Choice) -> Result<Outcome> {
    let machine = Machine::here();
    if choice.real_time {
        crate::os::before_all_others()?;
    }
    let Extent { rounds, trips } = extent(quick);
    println!(
        "Round trips of datagrams over loopback on {}, {} processors. Published: of the kernel's.\n",
        machine.processor, machine.processors
    );
    let mut cells = Vec::new();
    for waiting in Waiting::ALL {
        for bytes in SIZES {
            let trial = Trial { waiting, bytes, trips };
            let found = alternate(&trial, rounds);
            println!("{}, {bytes} B\n{}", waiting.title(), table(&found));
            cells.extend(found);
        }
    }
    let targets = judge(&cells);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome { machine, real_time: choice.real_time, cells, targets })
}

/// Measures every way at every placement; they take turns within each round.
fn alternate(trial: &Trial, rounds: usize) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for way in UdpStacks::ALL {
        for placement in Placement::ALL.into_iter().filter(|at| way.has(*at)) {
            let (waiting, bytes) = (trial.waiting, trial.bytes);
            cells.push(Cell { way, placement, waiting, bytes, ns: None, rounds: Vec::new() });
        }
    }
    for _ in 0..rounds {
        for cell in &mut cells {
            match world::measure(cell.way, cell.placement, trial) {
                Ok(ns) => cell.rounds.push(ns),
                Err(error) => eprintln!("{}: {error:#}", cell.way.title()),
            }
        }
    }
    for cell in &mut cells {
        cell.ns = (!cell.rounds.is_empty()).then(|| median(&cell.rounds));
    }
    cells
}

fn table(cells: &[Cell]) -> String {
    let mut table = Table::new(["way", "clients", "round trip", "of kernel", "published"]);
    let base = best(cells, UdpStacks::Kernel).unwrap_or(0.0);
    for cell in cells {
        let shown = cell.ns.map_or("-".to_owned(), duration);
        table.row([
            cell.way.title().to_owned(),
            cell.placement.title().to_owned(),
            shown,
            ratio(cell.ns.unwrap_or(0.0), base),
            format!("{:.2}", cell.way.published_ms() / UdpStacks::Kernel.published_ms()),
        ]);
    }
    table.render()
}

/// Returns the time of a way at its best placement.
pub(crate) fn best<'c>(cells: impl IntoIterator<Item = &'c Cell>, way: UdpStacks) -> Option<f64> {
    let of_way = cells.into_iter().filter(|cell| cell.way == way);
    of_way.filter_map(|cell| cell.ns).min_by(f64::total_cmp)
}

fn judge(cells: &[Cell]) -> Vec<TargetResult> {
    let one = |bytes: usize| {
        let those =
            || cells.iter().filter(|cell| cell.bytes == bytes && cell.waiting == Waiting::Spinning);
        let target = format!("user to user, spinning, {bytes} B: of the kernel's");
        TargetResult::at_most(
            target,
            best(those(), UdpStacks::UserToUser),
            best(those(), UdpStacks::Kernel),
            1.0,
        )
    };
    SIZES.map(one).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(way: UdpStacks, placement: Placement, ns: Option<f64>) -> Cell {
        Cell { way, placement, waiting: Waiting::Spinning, bytes: 1, ns, rounds: Vec::new() }
    }

    #[test]
    fn ways_are_judged_by_their_best_placement() {
        let cells = [
            cell(UdpStacks::Kernel, Placement::Together, Some(9.0)),
            cell(UdpStacks::Kernel, Placement::Apart, Some(6.0)),
            cell(UdpStacks::UserToUser, Placement::Together, Some(5.0)),
            cell(UdpStacks::UserToUser, Placement::Apart, None),
        ];
        let targets = judge(&cells);
        assert_eq!(targets[0].measured, "0.83");
        assert_eq!((targets[0].reached, targets[1].reached), (Some(true), None));
        assert!(table(&cells).contains("1.50"));
    }
}
