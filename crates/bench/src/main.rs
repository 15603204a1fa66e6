//! `sojourn-bench`: the cost of Sojourn, beside the cost of the hardware and of its rivals.
//!
//! `copies` measures copy routines, `ipc` messages between processes, `idl` the marshalling of
//! generated stubs, `doors` the ways of calls to the preload library, `local` unmodified programs
//! on one host, `net` sessions between two hosts, `udp` the UDP server, `buffers` sending and
//! receiving in place, `papers` the tables of the papers that Sojourn answers. Each prints tables
//! and writes the same figures, with more detail, as JSON. Method and results:
//! `docs/understand/benchmarks.md`.

mod buffers;
mod copies;
mod doors;
mod idl;
mod ipc;
mod local;
mod machine;
mod net;
mod os;
mod papers;
mod stats;
mod table;
mod targets;
mod udp;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// Measures Sojourn.
#[derive(Parser)]
#[command(name = "sojourn-bench", version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Copy routines: by size, alignment and state of the caches.
    Copies {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        choice: copies::Choice,
    },
    /// Calls between processes: by size, way of waiting and number of clients.
    Ipc {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        choice: ipc::Choice,
    },
    /// Stubs: marshalling of several interfaces, and whole calls by argument size.
    Idl(Options),
    /// The ways of a program's calls to the preload library, and the loader's start.
    Doors(Options),
    /// Unmodified programs of one host: plain, with sockmap (eBPF), and under Sojourn.
    Local {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        choice: local::Choice,
    },
    /// Sessions between two hosts: by the kernel, under Sojourn, and by other protocol
    /// implementations.
    Net {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        choice: net::Choice,
    },
    /// Datagrams through the UDP server, and through the kernel.
    Udp {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        choice: udp::Choice,
    },
    /// Sending and receiving in place, beside `read` and `write` on the same stream.
    Buffers(Options),
    /// The papers' tables, published and measured today, as a page.
    Papers {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        choice: papers::Choice,
    },
    /// One end of the stream that `buffers` measures.
    #[command(hide = true)]
    BuffersEnd {
        /// `quick`, and the other end's address.
        words: Vec<String>,
    },
    /// A Unix server of the papers' tables, which `papers` starts.
    #[command(hide = true)]
    UnixServer {
        /// Words of `papers`.
        words: Vec<String>,
    },
    /// A measuring client of the protocol server, which `net` starts.
    #[command(hide = true)]
    NetServed {
        /// The protocol server's address, and words as `lab-bench` takes them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// One case of the table `memory`: `machine CASE` runs it in a traced virtual machine and
    /// prints the report, `init CASE` is that machine's first process, `inside CASE` runs the
    /// programs.
    #[command(hide = true)]
    Traced {
        /// The words.
        words: Vec<String>,
    },
    /// A measuring client with smoltcp's protocols, which `net` starts.
    #[cfg(feature = "rivals")]
    #[command(hide = true)]
    NetSmoltcp {
        /// Arguments of `lab-bench`, and the client's position on the link.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Runs one cell of the marshalling table a number of times, for profilers.
    IdlCell(Cell),
}

#[derive(clap::Args)]
struct Cell {
    /// Name of the row, as in the table.
    row: String,
    /// Heading of the column, as in the table.
    case: String,
    /// Number of calls.
    calls: u64,
}

#[derive(clap::Args)]
struct Options {
    /// Only checks that everything works: the figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// The file for the figures.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Copies { options, choice } => {
            let outcome = copies::run(options.quick, &choice)?;
            write(&options, "copies", &outcome)
        }
        What::Ipc { options, choice } => {
            let outcome = ipc::run(options.quick, &choice)?;
            write(&options, "ipc", &outcome)
        }
        What::Idl(options) => {
            let outcome = idl::run(options.quick)?;
            write(&options, "idl", &outcome)
        }
        What::Doors(options) => {
            let outcome = doors::run(options.quick)?;
            write(&options, "doors", &outcome)
        }
        What::Local { options, choice } => {
            let outcome = local::run(options.quick, &choice)?;
            write(&options, "local", &outcome)?;
            local::plot(&outcome, &options.path("local").with_extension(""))
        }
        What::Net { options, choice } if choice.list => {
            choice.print_rows(options.quick);
            Ok(())
        }
        What::Net { options, choice } => {
            let outcome = net::run(options.quick, &choice)?;
            write(&options, "net", &outcome)
        }
        What::Udp { options, choice } => {
            let outcome = udp::run(options.quick, &choice)?;
            write(&options, "udp", &outcome)
        }
        What::Buffers(options) => {
            let outcome = buffers::run(options.quick)?;
            write(&options, "buffers", &outcome)
        }
        What::BuffersEnd { words } => buffers::end(&words),
        What::Papers { mut options, choice } => {
            let outcome = papers::run(options.quick, &choice)?;
            let beside = || choice.page().with_extension("json");
            options.json.get_or_insert_with(beside);
            write(&options, "papers", &outcome)
        }
        What::UnixServer { words } => papers::unix_server(&words),
        What::NetServed { words } => net::served(&words),
        What::Traced { words } => papers::traced(&words),
        #[cfg(feature = "rivals")]
        What::NetSmoltcp { words } => net::smoltcp(&words),
        What::IdlCell(cell) => idl::repeat(&cell.row, &cell.case, cell.calls),
    }
}

impl Options {
    /// Returns the file for the figures.
    fn path(&self, name: &str) -> PathBuf {
        let default = || Path::new("target/bench").join(format!("{name}.json"));
        self.json.clone().unwrap_or_else(default)
    }
}

fn write(options: &Options, name: &str, outcome: &impl serde::Serialize) -> Result<()> {
    let path = options.path(name);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(outcome)?;
    std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    println!("figures: {}", path.display());
    Ok(())
}
