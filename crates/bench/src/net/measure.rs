//! The measurement of a row. Ways alternate: in each round every way has one turn, so that
//! disturbances of the machine meet all ways alike; a figure is the median over the rounds.

use std::time::Duration;

use serde::Serialize;

use super::row::{Measured, Row};
use super::way::{Side, Stacks, Wait};
use super::world::{Between, World};
use crate::local::measure::{Settings, in_turns};
use crate::local::row::{Times, Unit};
use crate::local::server::Returns;
use crate::stats::median;

/// Smallest part of the sessions that has to be away. Below it a figure is the kernel's rather than
/// Sojourn's and does not count.
pub(crate) const AWAY_ENOUGH: f64 = 0.9;

/// One case in one way: a line or a cell of the tables.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// Name of the table.
    pub(crate) group: String,
    /// Name of the row.
    pub(crate) row: String,
    /// Name of the case.
    pub(crate) case: String,
    /// The protocol implementation at each end.
    pub(crate) way: Stacks,
    /// The way in which the programs waited.
    pub(crate) wait: Wait,
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
    /// Processor time of client, server and session servers, in nanoseconds per operation; in bulk
    /// rows, per KiB.
    pub(crate) cpu_ns: Option<f64>,
    /// The part of the sessions that was away from the kernel, in the round in which it was
    /// smallest.
    pub(crate) away: Option<f64>,
    /// Ends that came home during all turns, by reason.
    pub(crate) returned: Returns,
    /// The reason why there is no figure.
    pub(crate) error: Option<String>,
}

impl Cell {
    /// Returns true if the figure belongs to the implementations that `way` names.
    pub(crate) fn counts(&self) -> bool {
        self.error.is_none() && self.value > 0.0 && self.was_away()
    }

    /// Returns true if Sojourn, where it takes part, really carried the sessions.
    pub(crate) fn was_away(&self) -> bool {
        self.away.is_none_or(|part| part >= AWAY_ENOUGH)
    }
}

/// One way of a row during the measurement.
struct Lane {
    way: Stacks,
    samples: Vec<Measured>,
    returned: Returns,
    error: Option<String>,
}

/// Measures a row in all its ways for which `is_wanted` returns true.
pub(crate) fn alternate(
    row: &dyn Row,
    world: &World,
    settings: &Settings,
    is_wanted: impl Fn(Stacks) -> bool,
) -> Vec<Cell> {
    let ways = row.ways().iter().copied().filter(|way| is_wanted(*way));
    let lane = |way| Lane {
        way,
        samples: Vec::new(),
        returned: Returns::new(),
        error: row.unavailable(world, way),
    };
    let mut lanes: Vec<Lane> = ways.map(lane).collect();
    let length = Duration::from_millis(settings.turn_ms);
    let rounds = settings.rounds.min(row.rounds());
    in_turns(&mut lanes, rounds, |lane| lane.take_turn(row, world, length));
    lanes.into_iter().flat_map(|lane| lane.cells(row)).collect()
}

impl Lane {
    fn take_turn(&mut self, row: &dyn Row, world: &World, length: Duration) {
        if self.error.is_some() {
            return;
        }
        let before = returns(world, self.way);
        match row.turn(world, self.way, length) {
            Ok(samples) => self.samples.extend(samples),
            Err(error) => self.error = Some(format!("{error:#}")),
        }
        for (reason, count) in returns(world, self.way) {
            let more = count.saturating_sub(before.get(reason).copied().unwrap_or(0));
            if more > 0 {
                *self.returned.entry(reason).or_default() += more;
            }
        }
    }

    fn cells(self, row: &dyn Row) -> Vec<Cell> {
        let mut names: Vec<(&str, Wait)> = Vec::new();
        for Measured { sample, wait, .. } in &self.samples {
            if !names.contains(&(&sample.case, *wait)) {
                names.push((&sample.case, *wait));
            }
        }
        let of = |(case, wait): &(&str, Wait)| -> Vec<&Measured> {
            let samples = self.samples.iter();
            samples.filter(|one| one.sample.case == *case && one.wait == *wait).collect()
        };
        let mut cells: Vec<Cell> =
            names.iter().map(|name| cell(row, self.way, &of(name))).collect();
        if cells.is_empty() {
            cells.push(cell(row, self.way, &[]));
        }
        for cell in &mut cells {
            cell.returned.clone_from(&self.returned);
            cell.error.clone_from(&self.error);
        }
        cells
    }
}

/// Returns the counters of a way's session servers: ends that came home, by reason.
fn returns(world: &World, way: Stacks) -> Returns {
    let mut all = Returns::new();
    if !way.is_ours() {
        return all;
    }
    for between in [Between::Wire, Between::Relay] {
        for side in [Side::Server, Side::Client] {
            for (reason, count) in world.returns(way, between, side) {
                *all.entry(reason).or_default() += count;
            }
        }
    }
    all
}

fn cell(row: &dyn Row, way: Stacks, samples: &[&Measured]) -> Cell {
    let middle = |figure: &dyn Fn(&Measured) -> Option<f64>| {
        let figures: Vec<f64> = samples.iter().filter_map(|sample| figure(sample)).collect();
        if figures.is_empty() { None } else { Some(median(&figures)) }
    };
    let times = |figure: fn(&Times) -> f64| {
        middle(&|one| one.sample.times.as_ref().map(figure)).unwrap_or_default()
    };
    let has_times = samples.iter().any(|one| one.sample.times.is_some());
    let first = samples.first();
    Cell {
        group: row.group().into(),
        row: row.name(),
        case: first.map_or_else(|| row.name(), |one| one.sample.case.clone()),
        way,
        wait: first.map_or(Wait::Default, |one| one.wait),
        unit: first.map_or(Unit::Ns, |one| one.sample.unit),
        value: middle(&|one| Some(one.sample.value)).unwrap_or_default(),
        values: samples.iter().map(|one| one.sample.value).collect(),
        times: has_times.then(|| Times {
            p50: times(|times| times.p50),
            p90: times(|times| times.p90),
            p99: times(|times| times.p99),
        }),
        rate: middle(&|one| one.sample.rate),
        cpu_ns: middle(&|one| one.sample.cpu_ns),
        away: samples.iter().filter_map(|one| one.away).reduce(f64::min),
        returned: Returns::new(),
        error: None,
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
