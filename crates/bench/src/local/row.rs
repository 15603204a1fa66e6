//! The interface of a row: programs that are prepared once for each way, and turns of measuring
//! that alternate between the ways.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::way::RunMode;
use super::world::World;

/// Turns shorter than this belong to the quick run. Programs that can only run for whole seconds
/// then do a fixed small amount of work.
pub(crate) const QUICK: Duration = Duration::from_millis(100);

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Nanoseconds; fewer are better.
    Ns,
    /// Operations per second.
    PerS,
    /// Bytes per second.
    BytesPerS,
    /// Bytes of memory; fewer are better.
    Bytes,
}

impl Unit {
    /// Returns true if the smaller of two figures is the better one.
    pub(crate) fn is_smaller_better(self) -> bool {
        matches!(self, Self::Ns | Self::Bytes)
    }
}

/// Times of single operations, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    /// The median.
    pub(crate) p50: f64,
    /// The 90th percentile.
    pub(crate) p90: f64,
    /// The 99th percentile.
    pub(crate) p99: f64,
}

/// The result of one turn for one case.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Name of the case: one turn of a row may measure several cases.
    pub(crate) case: String,
    /// Unit of `value`.
    pub(crate) unit: Unit,
    /// The figure that is compared.
    pub(crate) value: f64,
    /// Times of single operations, where they are known.
    pub(crate) times: Option<Times>,
    /// Operations per second, where `value` is something else.
    pub(crate) rate: Option<f64>,
    /// Number of operations of this case in the turn.
    pub(crate) operations: f64,
    /// Processor time of all processes, in nanoseconds per operation, where the programs report it
    /// themselves.
    pub(crate) cpu_ns: Option<f64>,
}

impl Sample {
    /// Makes a sample that has only its figure.
    pub(crate) fn new(case: impl Into<String>, unit: Unit, value: f64, operations: f64) -> Self {
        let case = case.into();
        Self { case, unit, value, times: None, rate: None, operations, cpu_ns: None }
    }
}

/// A row: a set of programs whose cases are compared.
pub(crate) trait Row {
    /// Returns the name, for `--row` and the table.
    fn name(&self) -> &'static str;
    /// Returns the ways in which the row can run.
    fn ways(&self) -> &'static [RunMode] {
        RunMode::TCP
    }
    /// Returns the number of turns of each way in a full run.
    fn rounds(&self) -> usize {
        5
    }
    /// Starts the programs that stay over all turns of `way`.
    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>>;
}

/// A row in one way.
pub(crate) trait Turn {
    /// Measures for one turn, for about `length` per case.
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>>;
}
