//! Many clients on one server: throughput and latency, with the clients on one processor and the
//! server on the other.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use super::measure::Settings;
use super::row::{Crowd, Many, Mode};
use super::worker::{Answers, Order, RowProcesses, Task, warm_up};
use super::{ours, rivals};
use crate::stats;

/// Bytes of each request.
pub(super) const SIZE: usize = 64;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ManyCell {
    /// Name of the server.
    pub(crate) row: String,
    /// Number of clients at one time.
    pub(crate) clients: usize,
    /// Calls per second of all clients together: median over rounds.
    pub(crate) calls_per_s: f64,
    /// Latency of one call, nanoseconds: median.
    pub(crate) p50_ns: f64,
    /// Latency of one call, nanoseconds: 99th percentile.
    pub(crate) p99_ns: f64,
    /// Latency of one call, nanoseconds: the longest.
    pub(crate) max_ns: f64,
    /// Processor time of server and clients, nanoseconds per call: median over rounds.
    pub(crate) cpu_ns: f64,
    /// The reason why there is no measured rate.
    pub(crate) error: Option<String>,
}

struct CrowdRow {
    crowd: Crowd,
    processes: Result<RowProcesses>,
    ns_per_call: Option<f64>,
    rates: Vec<f64>,
    cpu: Vec<f64>,
    samples: Vec<f64>,
}

impl CrowdRow {
    fn start(crowd: Crowd, clients: usize, settings: &Settings) -> Self {
        let [server_cpu, client_cpu] = settings.place(Mode::BlockTwo);
        let processes = (crowd.make)(clients).and_then(|Many { server, clients }| {
            RowProcesses::new(server, clients, server_cpu, client_cpu)
        });
        Self { crowd, processes, ns_per_call: None, rates: vec![], cpu: vec![], samples: vec![] }
    }

    fn visit(&mut self, clients: usize, batch_ns: f64) {
        let Ok(processes) = &mut self.processes else { return };
        let count = match self.ns_per_call {
            None => 16,
            Some(ns) => (batch_ns / ns / clients as f64).clamp(16.0, 50_000.0) as u64,
        };
        let order = Order { task: Task::Call, size: SIZE, count, group: 1, clients: 0 };
        let start = Instant::now();
        match processes.run(order) {
            Ok(Answers { server, clients: answers }) => {
                let calls = (count + warm_up(count)) as f64 * clients as f64;
                let ns_per_call = start.elapsed().as_nanos() as f64 / calls;
                if self.ns_per_call.replace(ns_per_call).is_some() {
                    let client_cpu: f64 = answers.iter().map(|a| a.cpu_ns).sum();
                    self.cpu.push(server.cpu_ns + client_cpu / clients as f64);
                    self.rates.push(1e9 / ns_per_call);
                    self.samples.extend(answers.iter().flat_map(|a| a.samples.iter()));
                }
            }
            Err(error) => self.processes = Err(error),
        }
    }

    fn cell(self, clients: usize) -> ManyCell {
        let samples = stats::sorted(&self.samples);
        ManyCell {
            row: self.crowd.name.into(),
            clients,
            calls_per_s: stats::median(&self.rates),
            p50_ns: stats::percentile(&samples, 0.5),
            p99_ns: stats::percentile(&samples, 0.99),
            max_ns: stats::percentile(&samples, 1.0),
            cpu_ns: stats::median(&self.cpu),
            error: self.processes.err().map(|error| format!("{error:#}")),
        }
    }
}

/// Measures all numbers of clients; for each number, the kinds of server alternate.
pub(super) fn measure(settings: &Settings) -> Vec<ManyCell> {
    let mut cells = Vec::new();
    let rounds = settings.rounds.min(5);
    for &clients in &settings.clients {
        let mut crowds = ours::crowds();
        crowds.push(Crowd { name: "unix stream socket, epoll", make: rivals::unix_crowd });
        let mut entries: Vec<CrowdRow> =
            crowds.into_iter().map(|crowd| CrowdRow::start(crowd, clients, settings)).collect();
        for _ in 0..=rounds {
            for entry in &mut entries {
                entry.visit(clients, settings.batch_ns * 4.0);
            }
        }
        cells.extend(entries.into_iter().map(|entry| entry.cell(clients)));
    }
    cells
}
