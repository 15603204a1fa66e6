//! iperf3: bulk transfer over one TCP connection.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sojourn_lab::Running;

use crate::local::row::{QUICK, Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{World, free_port, run};

/// The row of iperf3.
pub(super) struct Iperf;

impl Row for Iperf {
    fn name(&self) -> &'static str {
        "iperf3"
    }

    fn rounds(&self) -> usize {
        3
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let port = free_port("127.0.0.1")?.to_string();
        let mut command = world.command(way, "iperf3");
        command.args(["-s", "-B", "127.0.0.1", "-p", &port, "--forceflush"]);
        // No probe for the listening port: iperf3 would take the probe's connection for a client.
        // The first turn tries again instead.
        let server = Running::start(command)?;
        Ok(Box::new(Client { way, port, _server: server }))
    }
}

struct Client {
    way: RunMode,
    port: String,
    _server: Running,
}

impl Client {
    fn run(&self, world: &World, length: Duration) -> Result<String> {
        let mut command = world.command(self.way, "iperf3");
        command.args(["-c", "127.0.0.1", "-p", &self.port, "-J"]);
        command.args(if length < QUICK { ["-n", "200M"] } else { ["-t", "1"] });
        run(command)
    }
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let mut text = self.run(world, length);
        for _ in 0..3 {
            if text.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            text = self.run(world, length);
        }
        let said: Value = serde_json::from_str(&text?)?;
        let end = &said["end"]["sum_received"];
        let bits = end["bits_per_second"].as_f64().context("no rate")?;
        let bytes = end["bytes"].as_f64().context("no bytes")?;
        // One operation is a write of 128 KiB, iperf3's default length for TCP.
        Ok(vec![Sample::new("iperf3", Unit::BytesPerS, bits / 8.0, bytes / f64::from(128 << 10))])
    }
}
