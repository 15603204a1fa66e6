//! redis: `redis-server` and `redis-benchmark` over TCP.
//!
//! The percentiles of `redis-benchmark` have steps of 8 us, more than a whole request takes. So the
//! latency of one client is the mean, computed from the rate.

use std::time::Duration;

use anyhow::{Context as _, Result};
use sojourn_lab::Running;

use crate::local::row::{Row, Sample, Times, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{World, free_port, listens, run, wait_until};

/// The row of a number of clients, each with a number of requests in flight.
struct Redis {
    name: &'static str,
    clients: u32,
    pipeline: u32,
}

/// Returns all rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(Redis { name: "redis-c1", clients: 1, pipeline: 1 }),
        Box::new(Redis { name: "redis-c50", clients: 50, pipeline: 1 }),
        Box::new(Redis { name: "redis-c50-P16", clients: 50, pipeline: 16 }),
    ]
}

impl Row for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let port = free_port("127.0.0.1")?;
        let mut command = world.command(way, "redis-server");
        command.arg("--dir").arg(world.folder(self.name, way)?).args(["--port", &port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let mut server = Running::start(command)?;
        wait_until(&mut server, || listens("127.0.0.1", port))?;
        let (name, clients, pipeline) = (self.name, self.clients, self.pipeline);
        Ok(Box::new(Client { way, port, name, clients, pipeline, per_s: 0.0, _server: server }))
    }
}

struct Client {
    way: RunMode,
    port: u16,
    name: &'static str,
    clients: u32,
    pipeline: u32,
    /// Requests per second in the last turn, from which the number of requests of the next is
    /// computed.
    per_s: f64,
    _server: Running,
}

impl Client {
    fn run(&mut self, world: &World, requests: f64) -> Result<Vec<Sample>> {
        let numbers = [u32::from(self.port), requests as u32, self.clients, self.pipeline];
        let numbers = numbers.map(|number| number.to_string());
        let mut command = world.command(self.way, "redis-benchmark");
        command.args(["-p", &numbers[0], "-n", &numbers[1], "-c", &numbers[2], "-P", &numbers[3]]);
        command.args(["-t", "get,set", "--csv"]);
        let text = run(command)?;
        let is_latency = self.clients == 1;
        let lines = text.lines().filter(|line| !line.starts_with("\"test\""));
        let samples: Result<Vec<Sample>> = lines
            .map(|line| sample(self.name, line, requests, is_latency).context(line.to_owned()))
            .collect();
        let samples = samples?;
        let rates = samples.iter().filter_map(|sample| sample.rate);
        self.per_s = rates.fold(f64::INFINITY, f64::min);
        Ok(samples)
    }
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        if self.per_s == 0.0 {
            self.run(world, 2000.0 * f64::from(self.pipeline))?;
        }
        // Every run begins with new connections in the kernel. Twice the length makes this
        // beginning count less.
        let requests = self.per_s * 2.0 * length.as_secs_f64();
        self.run(world, requests.clamp(100.0, 2e6))
    }
}

/// Parses a line: name, requests per second, then milliseconds: mean, minimum, p50, p95, p99,
/// maximum.
pub(crate) fn sample(row: &str, line: &str, requests: f64, is_latency: bool) -> Option<Sample> {
    let words: Vec<&str> = line.split(',').map(|word| word.trim_matches('"')).collect();
    let number = |place: usize| words.get(place)?.parse::<f64>().ok();
    let ns = |place| number(place).map(|ms| ms * 1e6);
    let rate = number(1)?;
    // The tables have no p95; it stands in the column of p90.
    let times = Times { p50: ns(4)?, p90: ns(5)?, p99: ns(6)? };
    let case = format!("{row} {}", words[0]);
    let (unit, value) = if is_latency { (Unit::Ns, 1e9 / rate) } else { (Unit::PerS, rate) };
    let sample = Sample::new(case, unit, value, requests);
    Some(Sample { times: Some(times), rate: Some(rate), ..sample })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_program() {
        let line = r#""GET","53763.44","0.016","0.008","0.015","0.023","0.031","0.615""#;
        let found = sample("redis-c1", line, 1000.0, true).unwrap();
        assert_eq!((found.case.as_str(), found.value.round()), ("redis-c1 GET", 18_600.0));
        assert_eq!((found.rate, found.times.unwrap().p99), (Some(53763.44), 31_000.0));
        assert!(sample("redis-c1", "\"GET\",nonsense", 1.0, true).is_none());
    }
}
