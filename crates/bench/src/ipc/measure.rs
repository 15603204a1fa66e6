//! The measurement of the IPC tables. Rows alternate: each round runs a short batch of every row,
//! so that disturbances of the machine meet all rows alike; a row's figure is the median over its
//! rounds.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::row::{Kind, Mode, Row};
use super::worker::{Answers, Order, RowProcesses, Task};
use crate::stats;

/// Bytes of one message of the bandwidth table.
pub(super) const ITEM: usize = 64 << 10;

/// Durations, repetitions, sizes and processors.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    /// Rounds: visits to each cell.
    pub(crate) rounds: usize,
    /// Nanoseconds that a visit should take.
    pub(crate) batch_ns: f64,
    /// Message sizes, in bytes.
    pub(crate) sizes: Vec<usize>,
    /// Numbers of clients on one server.
    pub(crate) clients: Vec<usize>,
    /// Processors of server and client; twice the same if the machine has only one.
    pub(crate) processors: [usize; 2],
    /// True for a smoke test, whose figures mean nothing.
    pub(crate) quick: bool,
}

impl Settings {
    /// Returns the processors of server and client in `mode`.
    pub(crate) fn place(&self, mode: Mode) -> [usize; 2] {
        match mode {
            Mode::BlockOne => [self.processors[1]; 2],
            _ => self.processors,
        }
    }

    /// Returns the modes that this machine can measure: with one processor, only that in which both
    /// sides share it.
    pub(crate) fn modes(&self) -> Vec<Mode> {
        let two = self.processors[0] != self.processors[1];
        Mode::ALL.into_iter().filter(|&mode| two || mode == Mode::BlockOne).collect()
    }
}

/// One cell of the tables.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// Name of the row.
    pub(crate) row: String,
    /// The row's role.
    pub(crate) kind: Kind,
    /// The way in which both sides wait.
    pub(crate) mode: Mode,
    /// Bytes of the request.
    pub(crate) size: usize,
    /// True for one-way messages, false for calls.
    pub(crate) one_way: bool,
    /// Nanoseconds per operation: median over the rounds of each round's median.
    pub(crate) ns: f64,
    /// Nanoseconds per operation: median over all groups of all rounds.
    pub(crate) p50_ns: f64,
    /// Nanoseconds per operation: 99th percentile over all groups of all rounds.
    pub(crate) p99_ns: f64,
    /// Processor time of both sides, nanoseconds per operation: median over rounds.
    pub(crate) cpu_ns: f64,
    /// Number of measured rounds.
    pub(crate) rounds: usize,
    /// The reason why there is no measured time.
    pub(crate) error: Option<String>,
}

/// The results of one cell so far.
#[derive(Default)]
struct Tally {
    ns_per_op: Option<f64>,
    medians: Vec<f64>,
    samples: Vec<f32>,
    cpu: Vec<f64>,
}

/// Largest number of groups in one batch, and so of times that a batch keeps.
const GROUPS_MAX: u64 = 2000;
/// Shortest duration of a group, so that the time to read the clock does not count.
const GROUP_NS: f64 = 2_000.0;

impl Tally {
    fn order(&self, task: Task, size: usize, batch_ns: f64) -> Order {
        let (count, group) = match self.ns_per_op {
            None => (16, 4),
            Some(ns) => {
                let count = (batch_ns / ns).clamp(24.0, 200_000.0) as u64;
                let few = (GROUP_NS / ns).clamp(1.0, 64.0) as u64;
                (count, few.max(count / GROUPS_MAX))
            }
        };
        Order { task, size, count, group, clients: 1 }
    }

    fn visit(
        &mut self,
        processes: &mut RowProcesses,
        task: Task,
        size: usize,
        batch_ns: f64,
    ) -> Result<()> {
        let calibrated = self.ns_per_op.is_some();
        let order = self.order(task, size, batch_ns);
        let Answers { server, clients } = processes.run(order)?;
        let samples: Vec<f64> = clients.iter().flat_map(|c| c.samples.iter().copied()).collect();
        let median = stats::median(&samples).max(0.1);
        self.ns_per_op = Some(median);
        if calibrated {
            self.medians.push(median);
            self.samples.extend(samples.iter().map(|&s| s as f32));
            self.cpu.push(server.cpu_ns + clients.iter().map(|c| c.cpu_ns).sum::<f64>());
        }
        Ok(())
    }
}

/// A row whose processes run in one mode.
struct RunningRow<'a> {
    row: &'a dyn Row,
    processes: std::result::Result<RowProcesses, String>,
    tallies: BTreeMap<Work, Tally>,
}

/// The work of some orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    size: usize,
    task: Task,
}

impl<'a> RunningRow<'a> {
    fn start(row: &'a dyn Row, mode: Mode, settings: &Settings) -> Self {
        let [server, client] = settings.place(mode);
        let processes = row.link(mode).and_then(|link| RowProcesses::pair(link, server, client));
        Self { row, processes: processes.map_err(|e| format!("{e:#}")), tallies: BTreeMap::new() }
    }

    fn visit(&mut self, task: Task, size: usize, settings: &Settings) {
        let tally = self.tallies.entry(Work { size, task }).or_default();
        let Ok(processes) = &mut self.processes else { return };
        if let Err(error) = tally.visit(processes, task, size, settings.batch_ns) {
            self.processes = Err(format!("{error:#}"));
        }
    }

    fn cells(self, mode: Mode) -> Vec<Cell> {
        let error = self.processes.err();
        let cell = |(Work { size, task }, tally): (&Work, &Tally)| {
            let samples: Vec<f64> = tally.samples.iter().map(|&s| f64::from(s)).collect();
            let samples = stats::sorted(&samples);
            Cell {
                row: self.row.name().into(),
                kind: self.row.kind(),
                mode,
                size: *size,
                one_way: *task == Task::Stream,
                ns: stats::median(&tally.medians),
                p50_ns: stats::percentile(&samples, 0.5),
                p99_ns: stats::percentile(&samples, 0.99),
                cpu_ns: stats::median(&tally.cpu),
                rounds: tally.medians.len(),
                error: if tally.medians.is_empty() { error.clone() } else { None },
            }
        };
        self.tallies.iter().map(cell).collect()
    }
}

/// Measures `rows` with each of `tasks` and `sizes` in one mode.
pub(crate) fn alternate(
    rows: &[Box<dyn Row>],
    mode: Mode,
    tasks: &[Task],
    sizes: &[usize],
    settings: &Settings,
) -> Vec<Cell> {
    let fits = |row: &dyn Row| sizes.iter().any(|&size| row.supports(mode, size));
    let present = rows.iter().map(AsRef::as_ref).filter(|row| fits(*row));
    let mut entries: Vec<RunningRow<'_>> =
        present.map(|row| RunningRow::start(row, mode, settings)).collect();
    // One round more than asked for: the first round only measures how long an operation takes, so
    // that the batches of the others get the right length.
    for _ in 0..=settings.rounds {
        for &size in sizes {
            for &task in tasks {
                for entry in entries.iter_mut().filter(|e| e.row.supports(mode, size)) {
                    entry.visit(task, size, settings);
                }
            }
        }
    }
    entries.into_iter().flat_map(|entry| entry.cells(mode)).collect()
}

/// Returns the cells of one mode, for tables that compare within a mode.
pub(super) fn of_mode(cells: &[Cell], mode: Mode) -> impl Iterator<Item = &Cell> {
    cells.iter().filter(move |cell| cell.mode == mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_become_as_long_as_asked() {
        let mut tally = Tally::default();
        assert_eq!(tally.order(Task::Call, 0, 1e6).count, 16);
        tally.ns_per_op = Some(100.0);
        let order = tally.order(Task::Call, 0, 1e6);
        assert_eq!((order.count, order.group), (10_000, 20));
        tally.ns_per_op = Some(1e6);
        assert_eq!(tally.order(Task::Call, 0, 1e6).group, 1);
    }
}
