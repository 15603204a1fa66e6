//! Ping-pong and bulk transfer over one connection of each kind (`lab-bench`), on two processors
//! and on one; the same with buffers at unaligned addresses; and calls at a fixed pace, with their
//! processor time.

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use super::figures::of_lab;
use crate::local::row::{QUICK, Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{World, free_port, listens, wait_until};
use crate::os;

/// Bytes of a large frame.
const LARGE: usize = 64 << 10;

/// The kind of connection between both sides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp(&'static str),
    Unix,
    Pipe,
}

/// The kind of traffic on the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// As fast as possible, with buffers that are in caches and begin where pages begin.
    Fast,
    /// As fast as possible, with other buffers and sizes.
    Buffers,
    /// Calls at a fixed pace.
    Paces,
}

struct Flow {
    name: &'static str,
    kind: Kind,
    is_one_processor: bool,
    work: Work,
}

/// Calls per second: the argument of `--pace`, and the name of the case.
const PACES: [(&str, &str); 5] = [
    ("10", "10 /s"),
    ("100", "100 /s"),
    ("1000", "1 k/s"),
    ("10000", "10 k/s"),
    ("100000", "100 k/s"),
];

/// A case of a row.
struct Case<'a> {
    name: &'a str,
    /// The kind of transfer.
    what: &'static str,
    /// Bytes of a message.
    size: usize,
    /// Further options, such as those for the position of messages.
    options: &'a [&'a str],
}

impl<'a> Case<'a> {
    const fn ping(name: &'a str, size: usize, options: &'a [&'a str]) -> Self {
        Self { name, what: "ping", size, options }
    }

    const fn bulk(name: &'a str, size: usize, options: &'a [&'a str]) -> Self {
        Self { name, what: "bulk", size, options }
    }
}

const FAST: [Case<'_>; 3] = [
    Case::ping("ping-pong 1 B", 1, &[]),
    Case::ping("ping-pong 64 KiB", LARGE, &[]),
    Case::bulk("bulk", LARGE, &[]),
];

const BUFFERS: [Case<'_>; 6] = [
    Case::ping("ping-pong 64 KiB, 16 B past a page", LARGE, &["--offset", "16"]),
    Case::bulk("bulk, 16 B past a page", LARGE, &["--offset", "16"]),
    Case::bulk("bulk, 8 B past a page", LARGE, &["--offset", "8"]),
    Case::ping("ping-pong 9001 B, 3 B past a page", 9001, &["--offset", "3"]),
    Case::bulk("bulk, 65521 B", 65_521, &["--offset", "16"]),
    Case::bulk("bulk, not in cache", LARGE, &["--offset", "16", "--cold", "1"]),
];

/// Returns all rows.
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
            rows.push(Box::new(Flow {
                name: two,
                kind,
                is_one_processor: false,
                work: Work::Fast,
            }));
        }
        rows.push(Box::new(Flow { name: one, kind, is_one_processor: true, work: Work::Fast }));
    }
    let more = [
        ("tcp-buffers", "tcp-paces", Kind::Tcp("127.0.0.1")),
        ("unix-buffers", "unix-paces", Kind::Unix),
        ("pipe-buffers", "pipe-paces", Kind::Pipe),
    ];
    let is_one_processor = os::processors().len() < 2;
    for (buffers, paces, kind) in more {
        for (name, work) in [(buffers, Work::Buffers), (paces, Work::Paces)] {
            rows.push(Box::new(Flow { name, kind, is_one_processor, work }));
        }
    }
    rows
}

impl Row for Flow {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ways(&self) -> &'static [RunMode] {
        match self.kind {
            Kind::Tcp(_) => RunMode::ALL,
            Kind::Unix | Kind::Pipe => &[RunMode::Plain, RunMode::Sojourn, RunMode::Asleep],
        }
    }

    fn rounds(&self) -> usize {
        // The slow paces take seconds.
        if self.work == Work::Paces { 3 } else { 5 }
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let processors = os::processors();
        let first = processors.first().copied().unwrap_or(0);
        let last = processors.last().copied().unwrap_or(0);
        let (client, server) = (first, if self.is_one_processor { first } else { last });
        let mut side = Client {
            way,
            name: self.name,
            place: EndPoints { client: client.to_string(), server: server.to_string() },
            kind: "",
            address: String::new(),
            work: self.work,
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

struct EndPoints {
    client: String,
    server: String,
}

struct Client {
    way: RunMode,
    name: &'static str,
    place: EndPoints,
    /// Word of `lab-bench` for the kind of connection; empty for pipes, which need no server.
    kind: &'static str,
    address: String,
    work: Work,
    _server: Option<Running>,
}

impl Client {
    fn serve(&self, world: &World) -> Result<Running> {
        let words = ["serve", self.kind, &self.address, "--pin", &self.place.server];
        world.lab_server(self.way, &words)
    }

    fn run(&self, world: &World, case: &Case<'_>, length: Duration) -> Result<Sample> {
        let Case { name, what, size, options } = *case;
        let (size, ms) = (size.to_string(), length.as_millis().to_string());
        let pair = format!("pair-{what}");
        let mut words: Vec<&str> = match self.kind {
            "" => vec![&pair],
            kind => vec![what, kind, &self.address],
        };
        let (client, server) = (&self.place.client, &self.place.server);
        words.extend(["--size", &size, "--time-ms", &ms, "--warm-ms", "40"]);
        words.extend(["--pin", client, "--child-pin", server]);
        words.extend(options);
        let measured = world.lab_result(self.way, &words)?;
        let unit = if what == "bulk" { Unit::BytesPerS } else { Unit::Ns };
        Ok(of_lab(format!("{} {name}", self.name), &measured, unit))
    }
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        // A turn has several cases with short operations, so a third of its length is enough for
        // each.
        let length = length / 3;
        let run = |case: &Case<'_>| self.run(world, case, length);
        match self.work {
            Work::Fast => FAST.iter().map(run).collect(),
            Work::Buffers => BUFFERS.iter().map(run).collect(),
            Work::Paces => {
                let paced = |(pace, name)| run(&Case::ping(name, 64, &["--pace", pace]));
                // The quick run leaves out the two slowest paces, which take seconds.
                let skipped = if length < QUICK / 3 { 2 } else { 0 };
                PACES.into_iter().skip(skipped).map(paced).collect()
            }
        }
    }
}
