//! Bulk transfer from memory to memory on one session, in either direction, as `ttcp` does it: with
//! offloads, and each program on its own processor.

use std::time::Duration;

use anyhow::Result;

use super::client::{Pins, client, ms, pins};
use crate::local::row::{Sample, Unit};
use crate::local::rows::of_lab;
use crate::net::row::{Measured, Row};
use crate::net::way::{Stacks, Wait};
use crate::net::world::{Between, Watched, World, parse};

/// Bytes of each write of the program, as a rule.
const FRAME: usize = 64 << 10;
/// Time for the session to move, and for windows to grow.
const WARM: Duration = Duration::from_millis(200);

struct Bulk {
    name: &'static str,
    /// The client's command: the name of a measurement of `lab-bench`.
    word: &'static str,
    group: &'static str,
    /// Bytes of each write of the program.
    frame: usize,
    /// Options of the measurement: where frames lie.
    options: &'static [&'static str],
}

/// Returns the rows of both directions.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    let row = |name, word| Bulk { name, word, group: "bulk", frame: FRAME, options: &[] };
    vec![Box::new(row("bulk-out", "bulk")), Box::new(row("bulk-in", "pull"))]
}

/// Returns the rows whose frames lie at odd places, have an odd size, or are in no cache.
pub(super) fn buffers() -> Vec<Box<dyn Row>> {
    let odd = &["--offset", "3"];
    let cold = &["--offset", "16", "--cold", "1"];
    let row = |name, word, frame, options| -> Box<dyn Row> {
        Box::new(Bulk { name, word, group: "buffers", frame, options })
    };
    vec![
        row("buffers-out-odd", "bulk", 65_521, odd),
        row("buffers-in-odd", "pull", 65_521, odd),
        row("buffers-out-cold", "bulk", FRAME, cold),
        row("buffers-in-cold", "pull", FRAME, cold),
    ]
}

/// Makes a sample of bytes per second, with the processor time per KiB.
pub(super) fn of_bytes(name: String, text: &str) -> Result<Sample> {
    let said = parse(text)?;
    let sample = of_lab(name, &said, Unit::BytesPerS);
    let kib = said["bytes"].as_f64().unwrap_or(0.0) / 1024.0;
    let cpu_ns = said["cpu_ns"].as_f64().map(|cpu| cpu / kib.max(1.0));
    Ok(Sample { cpu_ns, ..sample })
}

impl Row for Bulk {
    fn name(&self) -> String {
        self.name.into()
    }

    fn group(&self) -> &'static str {
        self.group
    }

    fn ways(&self) -> &'static [Stacks] {
        // The rivals know no options for the places of frames.
        if self.options.is_empty() { Stacks::INTERFACES } else { Stacks::OURS }
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        let length = length * 3;
        let hosts = world.place(way, Between::Wire)?;
        let address = hosts.free_name();
        let Pins { client: client_pin, server: server_pin } = pins();
        let mut words = vec!["serve", "tcp", &address];
        words.extend(server_pin.iter().map(String::as_str));
        let server = hosts.lab_server(Wait::Default, &words)?;
        let (size, time, warm) = (self.frame.to_string(), ms(length), ms(WARM));
        let mut words = vec![self.word, "tcp", &address, "--size", &size];
        words.extend(["--time-ms", &time, "--warm-ms", &warm]);
        words.extend(self.options);
        words.extend(client_pin.iter().map(String::as_str));
        let command = client(world, &hosts, Wait::Default, &words)?;
        let Watched { text, away } = hosts.watch(command, &server, 1, None, length)?;
        let sample = of_bytes(self.name.into(), &text)?;
        Ok(vec![Measured { sample, wait: Wait::Default, away }])
    }
}
