//! Many sessions between an echo server and a client, each with one thread and epoll(7) (`lab-bench
//! many`).

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use super::figures::of_lab;
use crate::local::row::{Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{Listening, World};

struct Many {
    name: &'static str,
    sessions: usize,
}

/// Returns all rows.
pub(super) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let all = [
        ("sessions-1", 1),
        ("sessions-10", 10),
        ("sessions-100", 100),
        ("sessions-1000", 1000),
        ("sessions-10000", 10_000),
    ];
    let of = |&(name, sessions): &(&'static str, usize)| -> Box<dyn Row> {
        Box::new(Many { name, sessions })
    };
    all.iter().filter(|(_, sessions)| !quick || *sessions <= 100).map(of).collect()
}

impl Row for Many {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rounds(&self) -> usize {
        if self.sessions < 10_000 { 5 } else { 3 }
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let Listening { address, server } = world.lab_service(way, "many-serve")?;
        Ok(Box::new(Client {
            way,
            row: self.name,
            sessions: self.sessions,
            address,
            _server: server,
        }))
    }
}

struct Client {
    way: RunMode,
    row: &'static str,
    sessions: usize,
    address: String,
    _server: Running,
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let (sessions, ms) = (self.sessions.to_string(), length.as_millis().to_string());
        let mut words = vec!["many", &self.address, "--sessions", &sessions, "--time-ms", &ms];
        // Each session has to be used 32 times to become hot; then all of them need time to move.
        let warm = (100 + self.sessions / 10).to_string();
        words.extend(["--warm-calls", "40", "--warm-ms", &warm]);
        let measured = world.lab_result(self.way, &words)?;
        Ok(vec![of_lab(self.row.into(), &measured, Unit::PerS)])
    }
}
