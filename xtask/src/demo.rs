//! `cargo xtask demo ipc`: a C client and a Rust server, both made from one IDL file.
//!
//! The demonstration runs four transports in turn, three times, and prints medians and ratios. The
//! careful measurement is `cargo xtask bench ipc`.

use crate::packages::{BUILD, ensure};
use crate::steps::{cargo, command, output, run};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const ROUNDS: usize = 3;
const CLIENT: &str = "target/release/sojourn-demo-client";
const GENERATED: &str = "target/demo";

/// The transports: the argument of server and client, and the name.
const WAYS: [(&str, &str); 4] = [
    ("adaptive", "Sojourn IPC, adaptive"),
    ("park", "Sojourn IPC, sleeping"),
    ("spinning", "Unix socket, spinning"),
    ("blocking", "Unix socket, sleeping"),
];

/// Builds everything and prints the comparison.
pub(crate) fn run_demo() -> Result<()> {
    ensure(BUILD)?;
    crate::build::libraries()?;
    run("build the server (Rust)", &mut cargo(&["build", "--release", "-p", "sojourn-demo"]))?;
    build_client()?;
    let mut times = [const { Vec::new() }; WAYS.len()];
    for round in 0..ROUNDS {
        eprintln!("── round {} of {ROUNDS}", round + 1);
        for ((way, _), times) in WAYS.iter().zip(&mut times) {
            times.push(measure(way)?);
        }
    }
    report(&times);
    Ok(())
}

fn build_client() -> Result<()> {
    std::fs::create_dir_all(GENERATED)?;
    let idl = ["target/release/sojourn-idl", "idl/examples/calc.idl", "--c", "-o", GENERATED];
    run("compile the interface to C", &mut command(&idl))?;
    let source = format!("{GENERATED}/calc_client.c");
    let include = format!("-I{GENERATED}");
    let cc = [
        "cc",
        "-O2",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Icrates/ipc-c/include",
        &include,
        "examples/demo/client.c",
        &source,
        "target/release/libsojourn_ipc.a",
        "-lpthread",
        "-ldl",
        "-lm",
        "-o",
        CLIENT,
    ];
    run("build the client (C)", &mut command(&cc))
}

/// A server that is killed when it goes out of scope.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nanoseconds of a call.
#[derive(Clone, Copy)]
struct CallTimes {
    add: u64,
    sum: u64,
}

/// Runs one transport.
fn measure(way: &str) -> Result<CallTimes> {
    let name = format!("sojourn-demo-{}", std::process::id());
    let path = std::env::temp_dir().join(&name);
    let is_ipc = matches!(way, "adaptive" | "park");
    let address = if is_ipc { format!("@{name}") } else { path.to_string_lossy().into_owned() };
    let mut server = command(&["target/release/sojourn-demo", way, &address]);
    let mut server = Server(server.stdout(Stdio::piped()).spawn().context("the demo's server")?);
    let stdout = server.0.stdout.take().context("the demo's server has no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line.trim() != "ready" {
        bail!("the demo's server did not start");
    }
    let printed = output(&mut command(&["timeout", "60", CLIENT, way, &address]));
    let _ = std::fs::remove_file(&path);
    let printed = printed?;
    let mut numbers = printed.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(add)), Some(Ok(sum))) => Ok(CallTimes { add, sum }),
        _ => bail!("the demo's client printed `{printed}`"),
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn report(times: &[Vec<CallTimes>]) {
    let of =
        |runs: &[CallTimes], one: fn(&CallTimes) -> u64| median(runs.iter().map(one).collect());
    let row =
        |runs: &Vec<CallTimes>| CallTimes { add: of(runs, |t| t.add), sum: of(runs, |t| t.sum) };
    let rows: Vec<CallTimes> = times.iter().map(row).collect();
    println!("\nA C client calls a Rust server; both are made from idl/examples/calc.idl.");
    println!("Medians of {ROUNDS} runs, nanoseconds per call.\n");
    println!("{:24} {:>12} {:>22}", "", "add(a, b)", "sum of 4096 numbers");
    for ((_, name), CallTimes { add, sum }) in WAYS.iter().zip(&rows) {
        println!("{name:24} {add:>12} {sum:>22}");
    }
    let [adaptive, sleeping, spinning, blocking] = rows.as_slice() else { return };
    let ratio = |theirs: u64, ours: u64| theirs as f64 / ours.max(1) as f64;
    let line = |what: &str, theirs: &CallTimes, ours: &CallTimes| {
        let (add, sum) = (ratio(theirs.add, ours.add), ratio(theirs.sum, ours.sum));
        println!("{what:52} {add:>6.1} times, {sum:>6.1} times");
    };
    println!();
    line("Sojourn is faster than a blocking Unix socket by", blocking, adaptive);
    line("than a spinning Unix socket by", spinning, adaptive);
    line("and, both sleeping, by", blocking, sleeping);
}
