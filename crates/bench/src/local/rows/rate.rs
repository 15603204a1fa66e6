//! Connections per second: connect, one question, close (`lab-bench rate`). No connection lives
//! long enough to be worth a move, so this shows the cost of Sojourn alone.

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use super::figures::of_lab;
use crate::local::row::{Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{Listening, World};

/// The row of connections per second.
pub(super) struct Connections;

impl Row for Connections {
    fn name(&self) -> &'static str {
        "connections"
    }

    fn rounds(&self) -> usize {
        9
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let Listening { address, server } = world.lab_service(way, "rate-serve")?;
        Ok(Box::new(Client { way, address, _server: server }))
    }
}

struct Client {
    way: RunMode,
    address: String,
    _server: Running,
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let ms = length.as_millis().to_string();
        let words = ["rate", &self.address, "--time-ms", &ms, "--warm-ms", "20"];
        let measured = world.lab_result(self.way, &words)?;
        Ok(vec![of_lab("connections".into(), &measured, Unit::PerS)])
    }
}
