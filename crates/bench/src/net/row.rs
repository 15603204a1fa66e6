//! The interface of a row: a measurement in turns, in every way that the row knows.

use std::time::Duration;

use anyhow::Result;

use super::way::{Stacks, Wait};
use super::world::World;
use crate::local::row::Sample;

/// The result of one turn for one case.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The measured figures.
    pub(crate) sample: Sample,
    /// The way in which the programs waited.
    pub(crate) wait: Wait,
    /// The part of the sessions that was away from the kernel during the measurement, from 0 to 1;
    /// `None` if Sojourn takes no part.
    pub(crate) away: Option<f64>,
}

/// A row: a measurement whose ways are compared.
pub(crate) trait Row {
    /// Returns the name, for `--row`.
    fn name(&self) -> String;
    /// Returns the name of the row's table; rows of a group share a table.
    fn group(&self) -> &'static str;
    /// Returns the ways in which the row can run. The others are compared with the first.
    fn ways(&self) -> &'static [Stacks];
    /// Returns the reason why nothing can be measured in `way`, if there is one.
    fn unavailable(&self, world: &World, way: Stacks) -> Option<String> {
        world.unavailable(way)
    }
    /// Returns the number of turns of each way in a full run.
    fn rounds(&self) -> usize {
        5
    }
    /// Measures for one turn, for about `length` per case.
    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>>;
}
