//! Interleaved visits: each round makes every visit once, in another order, so that a disturbance
//! of the machine affects all visits alike. A figure is the median over the rounds.

use super::emulation::{CallPath, Emulation, Visit, Work};
use super::progress::Progress;
use crate::stats::median;
use crate::udp::world::{Placement, Waiting};

/// A visit with the results of its rounds.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) visit: Visit,
    pub(crate) rounds: Vec<f64>,
    pub(crate) error: Option<String>,
}

impl Cell {
    /// Returns the nanoseconds per operation.
    pub(crate) fn ns(&self) -> Option<f64> {
        (!self.rounds.is_empty()).then(|| median(&self.rounds))
    }
}

/// The length of a visit and the number of rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) rounds: usize,
    pub(crate) ms: u32,
}

impl Length {
    /// Returns the length of a full run, or of a quick one that tests only that everything works.
    pub(crate) fn of(quick: bool) -> Self {
        if quick { Self { rounds: 1, ms: 12 } } else { Self { rounds: 7, ms: 100 } }
    }
}

/// Makes all visits. A visit that fails has no result in that round.
pub(crate) fn alternate(
    emulation: &Emulation,
    visits: Vec<Visit>,
    rounds: usize,
    progress: &Progress,
) -> Vec<Cell> {
    let cell = |visit| Cell { visit, rounds: Vec::new(), error: None };
    let mut cells: Vec<Cell> = visits.into_iter().map(cell).collect();
    let count = cells.len();
    for round in 0..rounds {
        for place in 0..count {
            // Rotating the order makes every visit the first and the last of a round about equally
            // often.
            let cell = &mut cells[(place + round * count / rounds) % count];
            match emulation.measure(&cell.visit) {
                Ok(ns) => cell.rounds.push(ns),
                Err(error) => cell.error = Some(format!("{error:#}")),
            }
            progress.at((round * count + place + 1) as f64 / (rounds * count) as f64);
        }
    }
    cells
}

/// Returns a path's figure at its best placement.
pub(crate) fn best(cells: &[Cell], way: CallPath, waiting: Waiting, work: Work) -> Option<f64> {
    let fits = |cell: &&Cell| {
        (cell.visit.way, cell.visit.waiting, cell.visit.work) == (way, waiting, work)
    };
    cells.iter().filter(fits).filter_map(Cell::ns).min_by(f64::total_cmp)
}

/// Returns the errors, each once.
pub(crate) fn notes(cells: &[Cell]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for cell in cells {
        if let Some(error) = &cell.error {
            let first = error.lines().next().unwrap_or_default();
            let often = if cell.rounds.is_empty() { "" } else { ", in some rounds" };
            let visit = &cell.visit;
            let note = format!("{:?}, {}{often}: {first}", visit.way, visit.waiting.title());
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Returns the placements of a path's processes. A program that spins without yielding cannot share
/// its processor.
pub(crate) fn placements(way: CallPath, waiting: Waiting) -> &'static [Placement] {
    match (way, waiting) {
        (CallPath::Stream, Waiting::Spinning) => &[Placement::Apart],
        _ => &Placement::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_judged_by_its_best_placement_and_failures_are_told_once() {
        let visit = |placement| Visit {
            way: CallPath::Library,
            waiting: Waiting::Sleeping,
            placement,
            work: Work::Pid,
            ms: 1,
        };
        let cell = |placement, rounds: &[f64], error: Option<&str>| Cell {
            visit: visit(placement),
            rounds: rounds.to_vec(),
            error: error.map(str::to_owned),
        };
        let cells = [
            cell(Placement::Together, &[9.0, 7.0, 8.0], None),
            cell(Placement::Apart, &[5.0], None),
            cell(Placement::Single, &[], Some("no\nmore")),
            cell(Placement::Single, &[], Some("no\nother")),
            cell(Placement::Single, &[6.0], Some("late")),
        ];
        assert_eq!(best(&cells, CallPath::Library, Waiting::Sleeping, Work::Pid), Some(5.0));
        assert_eq!(best(&cells, CallPath::Kernel, Waiting::Sleeping, Work::Pid), None);
        assert_eq!(
            notes(&cells),
            ["Library, sleeping: no", "Library, sleeping, in some rounds: late"]
        );
    }
}
