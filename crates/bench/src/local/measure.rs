//! The measurement of a row. Ways alternate: in each round every way has one turn, so that
//! disturbances of the machine meet all ways alike; a figure is the median over the rounds.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::row::{Row, Sample, Times, Turn, Unit};
use super::server::{Admin, Returns};
use super::way::RunMode;
use super::world::World;
use crate::stats::median;

/// Durations and repetitions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    /// Largest number of rounds; a row may have fewer.
    pub(crate) rounds: usize,
    /// Length of a turn, in milliseconds.
    pub(crate) turn_ms: u64,
    /// True for a run that only checks that everything works; its figures mean nothing.
    pub(crate) quick: bool,
}

/// One case in one way: a line of the tables.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// Name of the row.
    pub(crate) row: String,
    /// Name of the case.
    pub(crate) case: String,
    /// The way in which the programs ran.
    pub(crate) way: RunMode,
    /// Unit of `value`.
    pub(crate) unit: Unit,
    /// The median over the rounds.
    pub(crate) value: f64,
    /// The value of each round.
    pub(crate) values: Vec<f64>,
    /// Times of single operations: medians over the rounds.
    pub(crate) times: Option<Times>,
    /// Operations per second.
    pub(crate) rate: Option<f64>,
    /// Processor time of all processes, in nanoseconds per operation.
    pub(crate) cpu_ns: Option<f64>,
    /// Streams that were made during the last turn, in all its cases.
    pub(crate) moved: Option<u64>,
    /// Ends of sessions that came home during the last turn, by reason. Sessions that ended are
    /// among them, with the reasons `closed` and `peer-left`.
    pub(crate) returned: Returns,
    /// The reason why there is no figure.
    pub(crate) error: Option<String>,
}

/// One way of a row during the measurement.
struct Lane {
    way: RunMode,
    turn: Result<Box<dyn Turn>>,
    samples: Vec<Sample>,
    moved: Option<u64>,
    returned: Returns,
}

/// The server's counters.
struct Counts {
    /// Streams that were made.
    joins: u64,
    /// Ends that came home, by reason.
    returns: Returns,
}

/// Measures a row in all its ways that this machine has.
pub(crate) fn alternate(row: &dyn Row, world: &World, settings: &Settings) -> Vec<Cell> {
    let ways = row.ways().iter().copied().filter(|&way| world.has(way));
    let prepared = |way| Lane::new(way, row.prepare(world, way));
    let mut lanes: Vec<Lane> = ways.map(prepared).collect();
    let mut admin = world.admin();
    let length = Duration::from_millis(settings.turn_ms);
    let rounds = settings.rounds.min(row.rounds());
    in_turns(&mut lanes, rounds, |lane| lane.take_turn(world, &mut admin, length));
    lanes.into_iter().flat_map(|lane| lane.cells(row.name())).collect()
}

/// Gives every lane one turn in each round. Each is the first, and the last, equally often.
pub(crate) fn in_turns<L>(lanes: &mut [L], rounds: usize, mut take_turn: impl FnMut(&mut L)) {
    for round in 0..rounds {
        let count = lanes.len();
        for place in 0..count {
            take_turn(&mut lanes[(place + round) % count]);
        }
    }
}

impl Lane {
    fn new(way: RunMode, turn: Result<Box<dyn Turn>>) -> Self {
        Self { way, turn, samples: Vec::new(), moved: None, returned: Returns::new() }
    }

    fn note_moves(&mut self, before: &Counts, after: Counts) {
        self.moved = Some(after.joins.saturating_sub(before.joins));
        let more = |(reason, count): (&'static str, u64)| {
            let more = count.saturating_sub(before.returns.get(reason).copied().unwrap_or(0));
            (more > 0).then_some((reason, more))
        };
        self.returned = after.returns.into_iter().filter_map(more).collect();
    }

    fn take_turn(&mut self, world: &World, admin: &mut Option<Admin>, length: Duration) {
        let Ok(turn) = &mut self.turn else { return };
        let is_ours = self.way.is_ours();
        let mut counts = || -> Option<Counts> {
            let admin = admin.as_mut().filter(|_| is_ours)?;
            Some(Counts { joins: admin.moves().ok()?.joins, returns: admin.returns().ok()? })
        };
        let (cpu, before) = (world.cpu_ns(self.way), counts());
        let result = turn.turn(world, length);
        let used = world.cpu_ns(self.way).zip(cpu).map(|(after, before)| after - before);
        let after = counts();
        match result {
            Err(error) => self.turn = Err(error),
            Ok(mut samples) => {
                let operations: f64 = samples.iter().map(|sample| sample.operations).sum();
                for sample in &mut samples {
                    let shared = used.map(|used| used / operations.max(1.0));
                    sample.cpu_ns = sample.cpu_ns.or(shared);
                }
                self.samples.extend(samples);
            }
        }
        if let (Some(before), Some(after)) = (before, after) {
            self.note_moves(&before, after);
        }
    }

    fn cells(self, row: &str) -> Vec<Cell> {
        let mut names: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !names.contains(&sample.case.as_str()) {
                names.push(&sample.case);
            }
        }
        let of = |case: &str| -> Vec<&Sample> {
            self.samples.iter().filter(|sample| sample.case == case).collect()
        };
        let mut cells: Vec<Cell> =
            names.iter().map(|case| cell(row, self.way, &of(case))).collect();
        for cell in &mut cells {
            (cell.moved, cell.returned) = (self.moved, self.returned.clone());
        }
        if let Err(error) = &self.turn {
            let error = Some(format!("{error:#}"));
            match cells.is_empty() {
                true => cells.push(Cell { error, ..cell(row, self.way, &[]) }),
                false => cells.iter_mut().for_each(|cell| cell.error.clone_from(&error)),
            }
        }
        cells
    }
}

fn cell(row: &str, way: RunMode, samples: &[&Sample]) -> Cell {
    let middle = |figure: &dyn Fn(&Sample) -> Option<f64>| {
        let figures: Vec<f64> = samples.iter().filter_map(|sample| figure(sample)).collect();
        if figures.is_empty() { None } else { Some(median(&figures)) }
    };
    let times = |figure: fn(&Times) -> f64| {
        middle(&|sample| sample.times.as_ref().map(figure)).unwrap_or_default()
    };
    let has_times = samples.iter().any(|sample| sample.times.is_some());
    let first = samples.first();
    Cell {
        row: row.into(),
        case: first.map_or_else(|| row.into(), |sample| sample.case.clone()),
        way,
        unit: first.map_or(Unit::Ns, |sample| sample.unit),
        value: middle(&|sample| Some(sample.value)).unwrap_or_default(),
        values: samples.iter().map(|sample| sample.value).collect(),
        times: has_times.then(|| Times {
            p50: times(|times| times.p50),
            p90: times(|times| times.p90),
            p99: times(|times| times.p99),
        }),
        rate: middle(&|sample| sample.rate),
        cpu_ns: middle(&|sample| sample.cpu_ns),
        moved: None,
        returned: Returns::new(),
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_over_the_rounds() {
        let sample = |value: f64, p99: f64| Sample {
            times: Some(Times { p50: value, p90: value, p99 }),
            cpu_ns: (value > 1.0).then_some(value),
            ..Sample::new("case", Unit::Ns, value, 10.0)
        };
        let samples = [sample(1.0, 30.0), sample(2.0, 10.0), sample(9.0, 20.0)];
        let found = cell("row", RunMode::Plain, &samples.each_ref());
        assert_eq!((found.value, found.times.unwrap().p99), (2.0, 20.0));
        assert_eq!(found.cpu_ns, Some(5.5));
        assert_eq!(found.values, [1.0, 2.0, 9.0]);
    }

    #[test]
    fn moves_are_those_of_the_turn() {
        let mut lane = Lane::new(RunMode::Sojourn, Err(anyhow::anyhow!("-")));
        let before = Counts { joins: 3, returns: Returns::from([("set", 1), ("closed", 2)]) };
        let returns = Returns::from([("set", 4), ("closed", 2), ("user", 1)]);
        lane.note_moves(&before, Counts { joins: 5, returns });
        assert_eq!(lane.moved, Some(2));
        assert_eq!(lane.returned, Returns::from([("set", 3), ("user", 1)]));
    }

    #[test]
    fn what_failed_is_a_cell_with_the_reason() {
        let turn = Err(anyhow::anyhow!("no such program"));
        let lane = Lane::new(RunMode::Plain, turn);
        let cells = lane.cells("row");
        assert_eq!(cells[0].error.as_deref(), Some("no such program"));
    }
}
