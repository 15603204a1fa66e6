//! The rows of the benchmark between hosts: one file for each kind of program.

mod bulk;
mod client;
mod loss;
mod many;
mod moves;
mod redis;
mod round_trip;

pub(super) use moves::USUAL_GAP;

use std::time::Duration;

use anyhow::Result;

use super::row::{Measured, Row};
use super::way::Stacks;
use super::world::World;

/// Returns all rows, in the order of the tables.
pub(super) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let mut rows: Vec<Box<dyn Row>> = Vec::new();
    rows.extend(round_trip::tcp(quick));
    rows.extend(bulk::all());
    if !quick {
        rows.extend(bulk::buffers());
    }
    rows.extend(redis::all());
    rows.extend(many::all(quick));
    rows.extend(moves::all());
    rows.extend(loss::all(quick));
    rows.extend(round_trip::udp(quick));
    rows
}

/// A row, restricted to the ways that correspond to rows of the papers of 1993.
struct OfPapers(Box<dyn Row>);

impl Row for OfPapers {
    fn name(&self) -> String {
        self.0.name()
    }

    fn group(&self) -> &'static str {
        self.0.group()
    }

    fn ways(&self) -> &'static [Stacks] {
        &[
            Stacks::Kernel,
            Stacks::HomeServer,
            Stacks::ProtocolServer,
            Stacks::Driver,
            Stacks::DriverMemory,
            Stacks::Message,
            Stacks::Port,
            Stacks::Client,
            Stacks::Both,
        ]
    }

    fn unavailable(&self, world: &World, way: Stacks) -> Option<String> {
        self.0.unavailable(world, way)
    }

    fn rounds(&self) -> usize {
        self.0.rounds()
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        self.0.turn(world, way, length)
    }
}

/// Returns the rows of the papers: pinned round trips, and the bulk transfer that the program
/// sends.
pub(super) fn papers(quick: bool) -> Vec<Box<dyn Row>> {
    let all = bulk::all().into_iter().chain(round_trip::tcp(quick)).chain(round_trip::udp(quick));
    let is_one = |row: &dyn Row| row.name() == "bulk-out" || row.group().ends_with("-pinned");
    all.filter(|row| is_one(row.as_ref()))
        .map(|row| -> Box<dyn Row> { Box::new(OfPapers(row)) })
        .collect()
}
