//! Alternation: every way of a row has its turn, then every way again; a figure is the median over
//! the rounds.

use std::time::Duration;

use serde::Serialize;

use super::row::{Measured, Row};
use super::way::{Side, Stacks, Wait};
use super::world::{Between, World};
use crate::local::row::{Times, Unit};
use crate::local::server::Returns;
use crate::stats::median;

/// Less than this part of the sessions away, and a figure says nothing of Sojourn.
pub(crate) const AWAY_ENOUGH: f64 = 0.9;

/// How long to measure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    /// At most so many rounds.
    pub(crate) rounds: usize,
    /// Length of a turn (milliseconds).
    pub(crate) turn_ms: u64,
    /// Figures mean nothing.
    pub(crate) quick: bool,
}

/// One case in one way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// The table it belongs to.
    pub(crate) group: String,
    /// The row that measured it.
    pub(crate) row: String,
    /// What was measured.
    pub(crate) case: String,
    /// By whose protocols.
    pub(crate) way: Stacks,
    /// How the programs waited.
    pub(crate) wait: Wait,
    /// Of `value`.
    pub(crate) unit: Unit,
    /// The median over the rounds.
    pub(crate) value: f64,
    /// Each round's.
    pub(crate) values: Vec<f64>,
    /// Times of single operations, medians over the rounds.
    pub(crate) times: Option<Times>,
    /// Operations a second.
    pub(crate) rate: Option<f64>,
    /// Processor time of client, server and session servers for one operation; of bytes, for 1 KiB
    /// (ns).
    pub(crate) cpu_ns: Option<f64>,
    /// The part of the sessions that was away from the kernel, in the round in which it was least.
    pub(crate) away: Option<f64>,
    /// Ends that came home in all turns, by reason.
    pub(crate) returned: Returns,
    /// Why there is no figure.
    pub(crate) error: Option<String>,
}

impl Cell {
    /// Whether the figure is one of what the way's name says.
    pub(crate) fn counts(&self) -> bool {
        self.error.is_none() && self.value > 0.0 && self.was_away()
    }

    /// Whether Sojourn, if it takes part, really carried the sessions.
    pub(crate) fn was_away(&self) -> bool {
        self.away.is_none_or(|part| part >= AWAY_ENOUGH)
    }
}

/// One way of a row while it is measured.
struct Lane {
    way: Stacks,
    samples: Vec<Measured>,
    returned: Returns,
    error: Option<String>,
}

/// Measures a row in all ways that are wanted.
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
        error: row.lacks(world, way),
    };
    let mut lanes: Vec<Lane> = ways.map(lane).collect();
    let length = Duration::from_millis(settings.turn_ms);
    for round in 0..settings.rounds.min(row.rounds()) {
        let count = lanes.len();
        for place in 0..count {
            // Every way is first, and every way is last, equally often.
            lanes[(place + round) % count].take_turn(row, world, length);
        }
    }
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

/// What the session servers of a way have counted.
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
