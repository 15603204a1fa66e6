//! The ways in which Puma, ZeroMQ and gRPC use their connections (`lab-bench puma`, `zeromq`,
//! `grpc`): threads that wake each other, answers in two writes, long messages in many calls.
//!
//! Not here: these programs themselves, which `cargo xtask programs` runs.

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use super::figures::of_lab;
use crate::local::row::{QUICK, Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{World, free_port, listens, wait_until};

/// One traffic of a row's clients.
struct Case {
    name: &'static str,
    /// The client's word.
    client: &'static str,
    /// Bytes of a message.
    size: &'static str,
    /// Number of connections, or of calls at once on one.
    sessions: &'static str,
    unit: Unit,
}

struct Pattern {
    name: &'static str,
    /// The words with which the server is started, but its address.
    server: &'static [&'static str],
    is_tcp: bool,
    cases: &'static [Case],
}

const PUMA: &[Case] = &[
    Case { name: "1 client", client: "many", size: "64", sessions: "1", unit: Unit::Ns },
    Case { name: "4 clients", client: "many", size: "64", sessions: "4", unit: Unit::PerS },
    Case { name: "16 clients", client: "many", size: "64", sessions: "16", unit: Unit::PerS },
];

const ZEROMQ: &[Case] = &[
    Case { name: "100 B", client: "zeromq", size: "100", sessions: "1", unit: Unit::Ns },
    Case { name: "3 MB", client: "zeromq", size: "3000000", sessions: "1", unit: Unit::Ns },
];

const GRPC: &[Case] = &[
    Case { name: "100 B", client: "grpc", size: "100", sessions: "1", unit: Unit::Ns },
    Case {
        name: "1000 B, 8 at once",
        client: "grpc",
        size: "1000",
        sessions: "8",
        unit: Unit::PerS,
    },
    Case { name: "2 MB", client: "grpc", size: "2000000", sessions: "1", unit: Unit::Ns },
];

/// Names of the rows.
pub(crate) const PATTERNS: [&str; 4] = ["puma", "puma-select", "zeromq", "grpc"];

/// Returns all rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    let row = |name, server, is_tcp, cases| -> Box<dyn Row> {
        Box::new(Pattern { name, server, is_tcp, cases })
    };
    let [puma, select, zeromq, grpc] = PATTERNS;
    vec![
        row(puma, &["puma-serve", "epoll"], true, PUMA),
        row(select, &["puma-serve", "select"], true, PUMA),
        row(zeromq, &["zeromq-serve"], false, ZEROMQ),
        row(grpc, &["grpc-serve"], false, GRPC),
    ]
}

impl Row for Pattern {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ways(&self) -> &'static [RunMode] {
        &[RunMode::Plain, RunMode::Sojourn, RunMode::Asleep]
    }

    fn rounds(&self) -> usize {
        11
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let port = free_port("127.0.0.1")?;
        let path = world.folder(self.name, way)?.join("socket");
        let address = match self.is_tcp {
            true => format!("127.0.0.1:{port}"),
            false => path.to_string_lossy().into_owned(),
        };
        let words: Vec<&str> = self.server.iter().copied().chain([address.as_str()]).collect();
        let mut server = world.lab_server(way, &words)?;
        let is_tcp = self.is_tcp;
        wait_until(
            &mut server,
            || if is_tcp { listens("127.0.0.1", port) } else { path.exists() },
        )?;
        let (row, cases) = (self.name, self.cases);
        Ok(Box::new(Client { way, row, cases, address, _server: server }))
    }
}

struct Client {
    way: RunMode,
    row: &'static str,
    cases: &'static [Case],
    address: String,
    _server: Running,
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let ms = length.as_millis().to_string();
        // The beginning, in which sessions become hot and move, does not count.
        let (calls, warm_ms) = if length < QUICK { ("2", "10") } else { ("50", "100") };
        let measure = |case: &Case| {
            let mut words = vec![case.client, &self.address, "--size", case.size];
            words.extend(["--sessions", case.sessions, "--time-ms", &ms]);
            words.extend(["--warm-calls", calls, "--warm-ms", warm_ms]);
            let measured = world.lab_result(self.way, &words)?;
            Ok(of_lab(format!("{} {}", self.row, case.name), &measured, case.unit))
        };
        // The quick run tries one case of each row.
        let most = if length < QUICK { 1 } else { self.cases.len() };
        self.cases.iter().take(most).map(measure).collect()
    }
}
