//! Question and answer on one session, by size and by way of waiting, with each program on a
//! processor of its own, and without pinning.

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use super::client::{Pins, client, ms, pins};
use crate::local::row::{Sample, Unit};
use crate::local::rows::of_lab;
use crate::net::row::{Measured, Row};
use crate::net::way::{Stacks, Wait};
use crate::net::world::{Between, Watched, World, parse};

/// Time before the measurement, in which the session becomes hot and moves.
const WARM: Duration = Duration::from_millis(120);

struct RoundTrip {
    protocol: &'static str,
    size: usize,
    is_pinned: bool,
}

fn all(protocol: &'static str, sizes: &[usize]) -> Vec<Box<dyn Row>> {
    let of = |is_pinned| {
        sizes
            .iter()
            .map(move |&size| -> Box<dyn Row> { Box::new(RoundTrip { protocol, size, is_pinned }) })
    };
    of(true).chain(of(false)).collect()
}

/// Returns the rows of TCP, up to the payload of a full segment.
pub(super) fn tcp(quick: bool) -> Vec<Box<dyn Row>> {
    all("tcp", if quick { &[1, 1460] } else { &[1, 100, 512, 1024, 1460] })
}

/// Returns the rows of UDP, up to the payload of a full packet.
pub(super) fn udp(quick: bool) -> Vec<Box<dyn Row>> {
    all("udp", if quick { &[1, 1472] } else { &[1, 100, 512, 1024, 1472] })
}

impl Row for RoundTrip {
    fn name(&self) -> String {
        format!("{}-{}", self.group(), self.size)
    }

    fn group(&self) -> &'static str {
        match (self.protocol, self.is_pinned) {
            ("tcp", true) => "tcp-rtt-pinned",
            ("tcp", false) => "tcp-rtt",
            (_, true) => "udp-rtt-pinned",
            (_, false) => "udp-rtt",
        }
    }

    fn ways(&self) -> &'static [Stacks] {
        if self.protocol == "tcp" { Stacks::ROUND_TRIPS_TCP } else { Stacks::ROUND_TRIPS }
    }

    fn unavailable(&self, world: &World, way: Stacks) -> Option<String> {
        if self.protocol != "tcp" && way == Stacks::ProtocolServer {
            return Some("the benchmark's own client of the protocol server has TCP only".into());
        }
        world.unavailable(way)
    }

    fn rounds(&self) -> usize {
        if self.protocol == "tcp" { 5 } else { 3 }
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        let mut found = vec![self.run(world, way, Wait::Blocking, length)?];
        // Go's runtime decides itself when to sleep, so netstack has no spinning column.
        if way != Stacks::Gvisor {
            found.push(self.run(world, way, Wait::Spinning, length)?);
        }
        Ok(found)
    }
}

impl RoundTrip {
    fn run(&self, world: &World, way: Stacks, wait: Wait, length: Duration) -> Result<Measured> {
        let hosts = world.place(way, Between::Wire)?;
        let address = hosts.free_name();
        let Pins { client: client_pin, server: server_pin } = pins();
        let mut words = vec!["serve", self.protocol, &address];
        words.extend(server_pin.iter().map(String::as_str).filter(|_| self.is_pinned));
        let server: Running = hosts.lab_server(wait, &words)?;
        let (size, time, warm) = (self.size.to_string(), ms(length), ms(WARM));
        let mut words = vec!["ping", self.protocol, &address, "--size", &size];
        words.extend(["--time-ms", &time, "--warm-ms", &warm]);
        words.extend(client_pin.iter().map(String::as_str).filter(|_| self.is_pinned));
        let command = client(world, &hosts, wait, &words)?;
        let Watched { text, away } = hosts.watch(command, &server, 1, None, length)?;
        let name = format!("{} {} B", self.group(), self.size);
        let sample: Sample = of_lab(name, &parse(&text)?, Unit::Ns);
        Ok(Measured { sample, wait, away })
    }
}
