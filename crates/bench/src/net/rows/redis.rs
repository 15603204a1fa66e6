//! redis across the link: `redis-server` on one host, `redis-benchmark` on the other.

use std::time::Duration;

use anyhow::{Context as _, Result};
use sojourn_lab::Running;

use crate::local::row::Sample;
use crate::local::rows::redis;
use crate::net::row::{Measured, Row};
use crate::net::way::{Side, Wait, Way};
use crate::net::world::{Between, Place, World, await_listener};

struct Redis {
    name: &'static str,
    clients: u32,
    /// How many requests are a turn of a second, about.
    requests_per_s: f64,
}

/// All rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(Redis { name: "redis-c1", clients: 1, requests_per_s: 25_000.0 }),
        Box::new(Redis { name: "redis-c50", clients: 50, requests_per_s: 100_000.0 }),
    ]
}

impl Row for Redis {
    fn name(&self) -> String {
        self.name.into()
    }

    fn group(&self) -> &'static str {
        "redis"
    }

    fn ways(&self) -> &'static [Way] {
        Way::PROGRAMS
    }

    fn turn(&self, world: &World, way: Way, length: Duration) -> Result<Vec<Measured>> {
        let place = world.place(way, Between::Wire)?;
        let (address, port) = place.free_address();
        let mut command = place.command(Side::Server, Wait::Default, "redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.args(["--protected-mode", "no"]);
        let mut server = Running::start(command)?;
        await_listener(&place, &mut server, (&address, port))?;
        let mut found = Vec::new();
        // A run begins with new connections in the kernel: long enough that this counts little.
        for what in ["set", "get"] {
            let at = (address.as_str(), port);
            found.push(self.run(&place, &server, at, what, 4 * length)?);
        }
        Ok(found)
    }
}

impl Redis {
    fn run(
        &self,
        place: &Place,
        server: &Running,
        at: (&str, u16),
        what: &str,
        length: Duration,
    ) -> Result<Measured> {
        let requests = (self.requests_per_s * length.as_secs_f64()).max(2000.0);
        let mut command = place.command(Side::Client, Wait::Default, "redis-benchmark");
        command.args(["-h", at.0, "-p", &at.1.to_string(), "-t", what, "--csv"]);
        command.args(["-c", &self.clients.to_string(), "-n", &(requests as u64).to_string()]);
        let sessions = self.clients as usize;
        let warm = Duration::from_millis(60);
        let (text, away) = place.watch(command, server, sessions, (warm, length / 2))?;
        let line = text.lines().find(|line| !line.starts_with("\"test\"")).unwrap_or("");
        let sample: Option<Sample> = redis::sample(self.name, line, requests, self.clients == 1);
        let sample = sample.with_context(|| format!("not a line of figures: {text}"))?;
        Ok(Measured { sample, wait: Wait::Default, away })
    }
}
