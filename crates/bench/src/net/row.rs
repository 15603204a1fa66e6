//! What a row is: something measured in turns, in every way that it knows.

use std::time::Duration;

use anyhow::Result;

use super::way::{Stacks, Wait};
use super::world::World;
use crate::local::row::Sample;

/// What one turn found out about one case.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The figures.
    pub(crate) sample: Sample,
    /// How the programs waited.
    pub(crate) wait: Wait,
    /// The part of the sessions that was away from the kernel while it was measured, 0 to 1; none
    /// if Sojourn takes no part.
    pub(crate) away: Option<f64>,
}

/// One line of comparison.
pub(crate) trait Row {
    /// Its name, for `--row`.
    fn name(&self) -> String;
    /// Rows of a group share a table.
    fn group(&self) -> &'static str;
    /// The ways it can be run in; the first is what the others are compared with.
    fn ways(&self) -> &'static [Stacks];
    /// Why there is nothing to be measured in a way.
    fn lacks(&self, world: &World, way: Stacks) -> Option<String> {
        world.lacks(way)
    }
    /// How often each way has its turn in a full run.
    fn rounds(&self) -> usize {
        5
    }
    /// One turn of measuring, of about that length for each case.
    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>>;
}
