//! What a row is: programs prepared once for each way, and turns of measuring that alternate.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::way::RunMode;
use super::world::World;

/// Turns shorter than this are for the quick run: programs that measure whole seconds do less then.
pub(crate) const QUICK: Duration = Duration::from_millis(100);

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Nanoseconds, fewer are better.
    Ns,
    /// Operations a second.
    PerS,
    /// Bytes a second.
    BytesPerS,
    /// Bytes of memory, fewer are better.
    Bytes,
}

impl Unit {
    /// Whether a smaller figure is the better one.
    pub(crate) fn is_smaller_better(self) -> bool {
        matches!(self, Self::Ns | Self::Bytes)
    }
}

/// Times of single operations (nanoseconds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    /// The median.
    pub(crate) p50: f64,
    /// Nine in ten were faster.
    pub(crate) p90: f64,
    /// Ninety-nine in a hundred were faster.
    pub(crate) p99: f64,
}

/// What one turn found out about one case.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The case's name: a row may measure several things in one turn.
    pub(crate) case: String,
    /// Of `value`.
    pub(crate) unit: Unit,
    /// The figure that is compared.
    pub(crate) value: f64,
    /// Times of single operations, where they are known.
    pub(crate) times: Option<Times>,
    /// Operations a second, where `value` is something else.
    pub(crate) rate: Option<f64>,
    /// How many operations the turn carried out for this case.
    pub(crate) operations: f64,
    /// Processor time of all processes for one operation (ns), where the programs say it
    /// themselves.
    pub(crate) cpu_ns: Option<f64>,
}

impl Sample {
    /// With nothing but the figure.
    pub(crate) fn new(case: impl Into<String>, unit: Unit, value: f64, operations: f64) -> Self {
        let case = case.into();
        Self { case, unit, value, times: None, rate: None, operations, cpu_ns: None }
    }
}

/// One line of comparison.
pub(crate) trait Row {
    /// Its name, for `--row` and the table.
    fn name(&self) -> &'static str;
    /// The ways it can be run in.
    fn ways(&self) -> &'static [RunMode] {
        RunMode::TCP
    }
    /// How often each way has its turn in a full run.
    fn rounds(&self) -> usize {
        5
    }
    /// Starts what stays over all turns.
    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>>;
}

/// A row in one way.
pub(crate) trait Turn {
    /// One turn of measuring, of about that length for each case.
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>>;
}
