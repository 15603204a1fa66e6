//! `sojourn-bench papers`: the tables of the papers behind Sojourn, each with today's row beside
//! the published one, as one HTML page and JSON.
//!
//! Read `model.rs` (the data of a table), then any of the tables: `fidl`, `ipc`, `getpid`, `pipes`,
//! `udp1992`, `decomposition`. Figures come from the other benchmarks' measurements where these
//! have them, and from `emulation` for calls that a server answers. Not here: the look of the page
//! (`html`, `plot`), the published figures (`published`, `data/`).

mod decomposition;
mod emulation;
mod fidl;
mod getpid;
mod html;
mod ipc;
mod layers;
mod model;
mod pipes;
mod plot;
mod progress;
mod published;
mod turns;
mod udp1992;
mod unix;

pub(crate) use self::unix::serve as unix_server;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::emulation::Emulation;
use self::model::{Report, Section};
use self::progress::Progress;
use crate::machine::Machine;
use crate::net;

/// A table, in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Table {
    /// Stubs, 2000.
    Fidl,
    /// Messages between address spaces, 1990s.
    Ipc,
    /// The null system call emulated, 1997.
    Getpid,
    /// Seven pipes, 1997.
    Pipes,
    /// The UDP server, 1992.
    Udp1992,
    /// Protocols in kernel, server and library, 1993.
    Decomposition2,
    /// The same with buffers shared with the program, 1993.
    Decomposition3,
    /// Microseconds by layer, 1993.
    Decomposition4,
}

impl Table {
    /// The order of measurement. Rows of `ipc` and `idl` come first, because their processes are
    /// forked from a process that must have one thread.
    const ORDER: [Self; 8] = [
        Self::Fidl,
        Self::Ipc,
        Self::Udp1992,
        Self::Getpid,
        Self::Pipes,
        Self::Decomposition2,
        Self::Decomposition3,
        Self::Decomposition4,
    ];

    /// Returns the time of a full run, about (s).
    fn weight(self) -> f64 {
        match self {
            Self::Fidl => 15.0,
            Self::Ipc => 10.0,
            Self::Udp1992 => 80.0,
            Self::Getpid => 30.0,
            Self::Pipes => 110.0,
            Self::Decomposition2 => 400.0,
            Self::Decomposition3 => 0.1,
            Self::Decomposition4 => 20.0,
        }
    }
}

/// Options of a run; the default measures all tables.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choice {
    /// Only this table; may be given several times.
    #[arg(long)]
    table: Vec<Table>,
    /// Where the page goes; its JSON beside it.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Where a drawing of the seven pipes' latencies goes, as a file of its own.
    #[arg(long)]
    drawing: Option<PathBuf>,
}

impl Choice {
    /// Where the page goes.
    pub(crate) fn page(&self) -> PathBuf {
        self.html.clone().unwrap_or_else(|| Path::new("target/bench").join("papers.html"))
    }

    fn tables(&self) -> Vec<Table> {
        let wanted = |table: &Table| self.table.is_empty() || self.table.contains(table);
        Table::ORDER.into_iter().filter(wanted).collect()
    }
}

/// The time limit of a full run; the watchdog ends a run that takes longer.
const LIMIT: Duration = Duration::from_secs(1500);

/// Measurements that several tables share, made at their first use.
#[derive(Default)]
struct Shared {
    is_watched: bool,
    emulation: Option<Emulation>,
    hosts: Option<Vec<net::measure::Cell>>,
}

impl Shared {
    /// Has signals and the time limit remove hosts and folders before the process ends. From now on
    /// this process has several threads, and must not fork rows.
    fn watch(&mut self) {
        if !std::mem::replace(&mut self.is_watched, true) {
            net::watch(LIMIT);
        }
    }

    fn emulation(&mut self) -> Result<&Emulation> {
        self.watch();
        if self.emulation.is_none() {
            self.emulation = Some(Emulation::new()?);
        }
        self.emulation.as_ref().context("no emulation")
    }

    /// Returns the measurements between two hosts. Without the rights for network namespaces the
    /// list is empty, and tables have their published rows only.
    fn hosts(&mut self, quick: bool, progress: &Progress) -> &[net::measure::Cell] {
        self.watch();
        self.hosts.get_or_insert_with(|| {
            net::papers(quick, |part| progress.at(part)).unwrap_or_else(|error| {
                eprintln!("tables of 1993: {error:#}");
                Vec::new()
            })
        })
    }
}

/// Measures, writes the page, prints its summary, and returns the report for the JSON file.
pub(crate) fn run(quick: bool, choice: &Choice) -> Result<Report> {
    crate::os::raise_descriptor_limit();
    let (machine, start) = (Machine::here(), Instant::now());
    let tables = choice.tables();
    let progress = Progress::new(tables.iter().map(|table| table.weight()).sum());
    let (mut sections, mut shared) = (Vec::new(), Shared::default());
    for table in &tables {
        progress.begin(&format!("{table:?}"), table.weight());
        sections.push((*table, measured(*table, quick, &mut shared, &progress)?));
    }
    progress.end();
    sections.sort_by_key(|(table, _)| *table as usize);
    let report = Report {
        load_after: Machine::here().load,
        machine,
        quick,
        seconds: start.elapsed().as_secs_f64(),
        sections: sections.into_iter().map(|(_, section)| section).collect(),
    };
    let path = choice.page();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::write(&path, html::page(&report)).with_context(|| path.display().to_string())?;
    let pipes = report.sections.iter().find(|section| section.key == "pipes");
    if let Some((path, pipes)) = choice.drawing.as_ref().zip(pipes) {
        std::fs::write(path, plot::file(pipes, 0)).with_context(|| path.display().to_string())?;
    }
    for section in &report.sections {
        println!("{}\n  {}", section.title, section.answer);
    }
    println!("page: {}", path.display());
    Ok(report)
}

fn measured(
    table: Table,
    quick: bool,
    shared: &mut Shared,
    progress: &Progress,
) -> Result<Section> {
    Ok(match table {
        Table::Fidl => fidl::section(quick)?,
        Table::Ipc => ipc::section(quick)?,
        Table::Getpid => getpid::section(shared.emulation()?, quick, progress),
        Table::Pipes => pipes::section(shared.emulation()?, quick, progress),
        Table::Udp1992 => {
            let cells = udp1992::loopback(quick);
            shared.watch();
            udp1992::section(&cells, quick, progress)
        }
        Table::Decomposition2 => decomposition::placements(shared.hosts(quick, progress)),
        Table::Decomposition3 => decomposition::new_interface(shared.hosts(quick, progress)),
        Table::Decomposition4 => {
            shared.watch();
            layers::section(quick)
        }
    })
}
