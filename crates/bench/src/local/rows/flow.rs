//! Ping-pong and bulk over one connection of each kind (`lab-bench`), on two processors and on one.

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use super::of_lab;
use crate::local::row::{Row, Sample, Turn, Unit};
use crate::local::way::Way;
use crate::local::world::{World, free_port, listens, wait_until};
use crate::os;

/// Bytes of a large frame.
const LARGE: usize = 64 << 10;

/// What connects both sides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp(&'static str),
    Unix,
    Pipe,
}

struct Flow {
    name: &'static str,
    kind: Kind,
    is_one_processor: bool,
}

/// All rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    let both = [
        ("tcp", "tcp-pinned", Kind::Tcp("127.0.0.1")),
        ("tcp6", "tcp6-pinned", Kind::Tcp("::1")),
        ("unix", "unix-pinned", Kind::Unix),
        ("pipe", "pipe-pinned", Kind::Pipe),
    ];
    let mut rows: Vec<Box<dyn Row>> = Vec::new();
    for (two, one, kind) in both {
        if os::processors().len() > 1 {
            rows.push(Box::new(Flow { name: two, kind, is_one_processor: false }));
        }
        rows.push(Box::new(Flow { name: one, kind, is_one_processor: true }));
    }
    rows
}

impl Row for Flow {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ways(&self) -> &'static [Way] {
        match self.kind {
            Kind::Tcp(_) => Way::ALL,
            Kind::Unix | Kind::Pipe => &[Way::Plain, Way::Sojourn, Way::Asleep],
        }
    }

    fn prepare(&self, world: &World, way: Way) -> Result<Box<dyn Turn>> {
        let processors = os::processors();
        let first = processors.first().copied().unwrap_or(0);
        let last = processors.last().copied().unwrap_or(0);
        let (client, server) = (first, if self.is_one_processor { first } else { last });
        let mut side = Client {
            way,
            name: self.name,
            place: Place { client: client.to_string(), server: server.to_string() },
            kind: "",
            address: String::new(),
            _server: None,
        };
        match self.kind {
            Kind::Pipe => {}
            Kind::Tcp(address) => {
                let port = free_port(address)?;
                side.kind = "tcp";
                side.address = std::net::SocketAddr::new(address.parse()?, port).to_string();
                let mut server = side.serve(world)?;
                wait_until(&mut server, || listens(address, port))?;
                side._server = Some(server);
            }
            Kind::Unix => {
                side.kind = "unix";
                let path = world.folder(self.name, way)?.join("socket");
                side.address = path.to_string_lossy().into_owned();
                let mut server = side.serve(world)?;
                wait_until(&mut server, || path.exists())?;
                side._server = Some(server);
            }
        }
        Ok(Box::new(side))
    }
}

struct Place {
    client: String,
    server: String,
}

struct Client {
    way: Way,
    name: &'static str,
    place: Place,
    /// Empty for pipes.
    kind: &'static str,
    address: String,
    _server: Option<Running>,
}

impl Client {
    fn serve(&self, world: &World) -> Result<Running> {
        let words = ["serve", self.kind, &self.address, "--pin", &self.place.server];
        world.lab_server(self.way, &words)
    }

    fn run(&self, world: &World, what: &str, size: usize, length: Duration) -> Result<Sample> {
        let (size, ms) = (size.to_string(), length.as_millis().to_string());
        let pair = format!("pair-{what}");
        let mut words: Vec<&str> = match self.kind {
            "" => vec![&pair],
            kind => vec![what, kind, &self.address],
        };
        let (client, server) = (&self.place.client, &self.place.server);
        words.extend(["--size", &size, "--time-ms", &ms, "--warm-ms", "40"]);
        words.extend(["--pin", client, "--child-pin", server]);
        let measured = world.lab_result(self.way, &words)?;
        let (case, unit) = match (what, size.as_str()) {
            ("bulk", _) => ("bulk", Unit::BytesPerS),
            (_, "1") => ("ping-pong 1 B", Unit::Ns),
            _ => ("ping-pong 64 KiB", Unit::Ns),
        };
        Ok(of_lab(format!("{} {case}", self.name), &measured, unit))
    }
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        // Three cases and short operations: a third is plenty.
        let length = length / 3;
        Ok(vec![
            self.run(world, "ping", 1, length)?,
            self.run(world, "ping", LARGE, length)?,
            self.run(world, "bulk", LARGE, length)?,
        ])
    }
}
