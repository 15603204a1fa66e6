//! redis across the link: `redis-server` on one host, `redis-benchmark` on the other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sojourn_lab::Running;

use crate::local::row::Sample;
use crate::local::rows::redis;
use crate::net::row::{Measured, Row};
use crate::net::way::{Side, Stacks, Wait};
use crate::net::world::{Between, Hosts, Watched, World, await_listener};

struct Redis {
    name: &'static str,
    clients: u32,
    /// Requests per second of each way in its last run, from which the number of requests of the
    /// next run is computed.
    per_s: RefCell<HashMap<Stacks, f64>>,
}

/// Requests of the first run of each way, which only measures the rate.
const FIRST: f64 = 2000.0;
/// Smallest part of the wanted time that a run has to take. A shorter run is repeated with more
/// requests: the run before it was slower, perhaps because its sessions were still in the kernel.
const ENOUGH: f64 = 0.6;
const TRIES: usize = 4;

/// Returns all rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    let of = |&(name, clients): &(&'static str, u32)| -> Box<dyn Row> {
        Box::new(Redis { name, clients, per_s: RefCell::default() })
    };
    [("redis-c1", 1), ("redis-c50", 50)].iter().map(of).collect()
}

impl Row for Redis {
    fn name(&self) -> String {
        self.name.into()
    }

    fn group(&self) -> &'static str {
        "redis"
    }

    fn ways(&self) -> &'static [Stacks] {
        Stacks::PROGRAMS
    }

    fn rounds(&self) -> usize {
        4
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        let hosts = world.place(way, Between::Wire)?;
        let address = hosts.free_address();
        let mut command = hosts.command(Side::Server, Wait::Default, "redis-server");
        command.args(["--port", &address.port().to_string(), "--save", "", "--appendonly", "no"]);
        command.args(["--protected-mode", "no"]);
        let mut process = Running::start(command)?;
        await_listener(&hosts, &mut process, address)?;
        let server = Server { hosts: &hosts, process: &process, address };
        let known = self.per_s.borrow().get(&way).copied();
        let mut per_s = match known {
            Some(per_s) => per_s,
            None => rate(&self.run(&server, "get", FIRST, length)?),
        };
        let mut found = Vec::new();
        // A run begins with new connections in the kernel. It is long, so that this beginning
        // counts little.
        for what in ["set", "get"] {
            let length = 6 * length;
            for tries in 1..=TRIES {
                let requests = (per_s * length.as_secs_f64()).clamp(FIRST, 1e6);
                let measured = self.run(&server, what, requests, length)?;
                per_s = rate(&measured);
                let is_enough = requests / per_s >= ENOUGH * length.as_secs_f64();
                if is_enough || requests >= 1e6 || tries == TRIES {
                    let was_seen = measured.away.is_some() || !way.is_ours();
                    ensure!(was_seen, "it ended before anybody looked where its session was");
                    found.push(measured);
                    break;
                }
            }
        }
        self.per_s.borrow_mut().insert(way, per_s);
        Ok(found)
    }
}

/// A server that is measured.
struct Server<'a> {
    hosts: &'a Hosts,
    process: &'a Running,
    address: SocketAddr,
}

/// The requests per second of a run.
fn rate(measured: &Measured) -> f64 {
    measured.sample.rate.unwrap_or(FIRST)
}

impl Redis {
    /// Runs `requests` requests, which take about `length`.
    fn run(
        &self,
        server: &Server<'_>,
        what: &str,
        requests: f64,
        length: Duration,
    ) -> Result<Measured> {
        let Server { hosts, process, address } = *server;
        let mut command = hosts.command(Side::Client, Wait::Default, "redis-benchmark");
        command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.args(["-t", what, "--csv"]);
        command.args(["-c", &self.clients.to_string(), "-n", &(requests as u64).to_string()]);
        let sessions = self.clients as usize;
        let warm = Duration::from_millis(200);
        let Watched { text, away } =
            hosts.watch(command, process, sessions, Some(warm), length / 2)?;
        let line = text.lines().find(|line| !line.starts_with("\"test\"")).unwrap_or("");
        let sample: Option<Sample> = redis::sample(self.name, line, requests, self.clients == 1);
        let sample = sample.with_context(|| format!("not a line of figures: {text}"))?;
        Ok(Measured { sample, wait: Wait::Default, away })
    }
}
