//! `cargo xtask demo`: compares Debian's Redis plain and under `sojourn run`.
//!
//! Two servers run side by side on ports of their own, one plain and one under Sojourn.
//! `redis-benchmark` measures them in turn, so that both meet the same state of the machine. The
//! demonstration makes its own session server, directory and guard. The guard is a shell that waits
//! in a read: when this process ends, for any reason, the guard kills the servers and removes the
//! directory. Not here: serious measurement (`bench`).

use crate::packages::{BUILD, REDIS, ensure};
use crate::steps::{command, output};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

const SOJOURN: &str = "target/release/sojourn";
const ROUNDS: usize = 3;
/// Intended duration of one measurement of a plain server (s).
const MEASURE_S: f64 = 0.8;
/// Number of requests of the first run, from which the number for [`MEASURE_S`] is derived.
const PROBE: u64 = 2000;
/// Longest time from a server's start until it serves.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Load that the clients put on the server.
struct Load {
    name: &'static str,
    clients: &'static str,
    pipeline: &'static str,
}

const LOADS: [Load; 3] = [
    Load { name: "1 connection", clients: "1", pipeline: "1" },
    Load { name: "50 connections", clients: "50", pipeline: "1" },
    Load { name: "50, pipelines of 16", clients: "50", pipeline: "16" },
];

const TESTS: [&str; 2] = ["SET", "GET"];

/// Figures of one run of one test.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    per_second: f64,
    median_us: f64,
}

/// Figures of all runs of one test under one load: plain ones, and those under Sojourn.
#[derive(Default)]
struct Runs([Vec<Figures>; 2]);

/// Builds everything, measures, and prints the comparison.
pub(crate) fn run_demo() -> Result<()> {
    ensure(BUILD)?;
    ensure(REDIS)?;
    crate::build::everything()?;
    let others = others_running();
    let scene = Scene::new()?;
    let redis = [scene.redis(Mode::Plain)?, scene.redis(Mode::Sojourn)?];
    let mut runs: Vec<Runs> = LOADS.iter().flat_map(|_| TESTS).map(|_| Runs::default()).collect();
    let mut counts = Vec::new();
    for load in &LOADS {
        let probe = scene.benchmark(&redis[0], load, PROBE)?;
        let slowest = probe.iter().map(|figures| figures.per_second).fold(f64::MAX, f64::min);
        counts.push(((slowest * MEASURE_S) as u64).max(PROBE));
    }
    for round in 1..=ROUNDS {
        eprintln!("── round {round} of {ROUNDS}");
        for ((load, count), runs) in LOADS.iter().zip(&counts).zip(runs.chunks_mut(TESTS.len())) {
            for (mode, redis) in redis.iter().enumerate() {
                let figures = scene.benchmark(redis, load, *count)?;
                runs.iter_mut().zip(figures).for_each(|(runs, figures)| runs.0[mode].push(figures));
            }
        }
    }
    let moved = scene.joins()?;
    if moved == 0 {
        bail!("no connection moved, so the figures would say nothing: see `sojourn doctor`");
    }
    println!("{}", report(&runs, moved));
    if others >= 1 {
        println!(
            "{others} other threads were busy on this machine: measure again when it is quiet."
        );
    }
    Ok(())
}

/// Returns the median over one second of the number of other threads that run or are ready to run.
fn others_running() -> usize {
    const LOOKS: usize = 11;
    let mut counts: Vec<usize> = (0..LOOKS)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(90));
            let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
            running(&load).unwrap_or(0)
        })
        .collect();
    counts.sort_unstable();
    counts[LOOKS / 2]
}

/// Returns the number of runnable threads but for the caller, from the text of `/proc/loadavg`:
/// `0.00 0.01 0.05 2/345 6789`.
fn running(load: &str) -> Option<usize> {
    let all: usize = load.split(' ').nth(3)?.split('/').next()?.parse().ok()?;
    Some(all.saturating_sub(1))
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Plain,
    Sojourn,
}

/// Running Redis server. Dropping the value ends the server.
struct Redis {
    mode: Mode,
    port: u16,
    process: Child,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Directory, session server and guard of the demonstration.
///
/// Fields are dropped in the order of their declaration: the guard acts when its pipe is closed.
struct Scene {
    directory: PathBuf,
    guard: Guard,
    session_server: Child,
}

/// Shell that ends the servers when this process ends.
struct Guard {
    process: Child,
    /// Pipe to the shell's standard input; a process ID is written as one line.
    pids: Option<ChildStdin>,
}

const GUARD: &str = "\
while read -r pid; do pids=\"$pids $pid\"; done
kill $pids 2>/dev/null
rm -rf -- \"$0\"
";

impl Guard {
    fn new(directory: &Path) -> Result<Self> {
        let mut shell = Command::new("/bin/sh");
        // A process group of its own keeps SIGINT from Ctrl-C away from the guard. The signal ends
        // this process, which closes the pipe, and only then the guard acts.
        shell.arg("-c").arg(GUARD).arg(directory).process_group(0).stdin(Stdio::piped());
        let mut process = shell.spawn().context("a shell to clean up")?;
        let pids = process.stdin.take();
        Ok(Self { process, pids })
    }

    fn add(&self, process: &Child) -> Result<()> {
        let mut pipe = self.pids.as_ref().context("the guard is gone")?;
        writeln!(pipe, "{}", process.id()).context("the guard is gone")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pids.take());
        let _ = self.process.wait();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.session_server.kill();
        let _ = self.session_server.wait();
    }
}

impl Scene {
    fn new() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("sojourn-demo-{}", std::process::id()));
        std::fs::create_dir(&directory).with_context(|| format!("{}", directory.display()))?;
        let guard = Guard::new(&directory)?;
        let mut server = Command::new("target/release/sojournd");
        server.arg("--address").arg(directory.join("server")).args(["--log", "warn"]);
        let session_server = ready(&mut server, "ready ", &guard)?;
        Ok(Self { directory, guard, session_server })
    }

    /// Returns the command that runs `program` plain, or under `sojourn run` with the
    /// demonstration's session server.
    fn command(&self, mode: Mode, program: &str) -> Command {
        match mode {
            Mode::Plain => Command::new(program),
            Mode::Sojourn => {
                let mut run = Command::new(SOJOURN);
                run.env("SOJOURN_SERVER", self.directory.join("server"));
                run.args(["run", "--strict", "--", program]);
                run
            }
        }
    }

    fn redis(&self, mode: Mode) -> Result<Redis> {
        let port = free_port()?;
        let mut server = self.command(mode, "redis-server");
        server.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        server.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&self.directory);
        let process = ready(&mut server, "Ready to accept connections", &self.guard)?;
        Ok(Redis { mode, port, process })
    }

    /// Runs `redis-benchmark` and returns the figures of each of [`TESTS`].
    fn benchmark(&self, redis: &Redis, load: &Load, count: u64) -> Result<[Figures; TESTS.len()]> {
        let mut benchmark = self.command(redis.mode, "redis-benchmark");
        benchmark.args([
            "-h",
            "127.0.0.1",
            "-p",
            &redis.port.to_string(),
            "--csv",
            "-t",
            "set,get",
        ]);
        benchmark.args(["-c", load.clients, "-P", load.pipeline, "-n", &count.to_string()]);
        let printed = output(&mut benchmark)?;
        let mut figures = [Figures { per_second: 0.0, median_us: 0.0 }; TESTS.len()];
        for (test, figures) in TESTS.iter().zip(&mut figures) {
            *figures = figures_of(&printed, test)
                .with_context(|| format!("redis-benchmark printed `{printed}`"))?;
        }
        Ok(figures)
    }

    /// Returns the number of stream sessions that the session server has made so far.
    fn joins(&self) -> Result<u64> {
        let mut stats = command(&[SOJOURN, "stats", "--json"]);
        let text = output(stats.env("SOJOURN_SERVER", self.directory.join("server")))?;
        let stats: serde_json::Value = serde_json::from_str(&text)?;
        stats["joins"].as_u64().context("the session server counts no joins")
    }
}

/// Returns a port that was free when it was looked up.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Starts a server and waits until the server prints a line that contains `sign`.
fn ready(server: &mut Command, sign: &str, guard: &Guard) -> Result<Child> {
    let name = server.get_program().to_string_lossy().into_owned();
    let mut process = server
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    guard.add(&process)?;
    let stdout = process.stdout.take().context("a server has an output")?;
    let (told, tells) = channel();
    let sign = sign.to_owned();
    // The thread goes on reading after the sign, because a full pipe would block the server.
    std::thread::spawn(move || {
        let mut said = String::new();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.contains(&sign) {
                let _ = told.send(Ok(()));
            } else if said.len() < 4096 {
                said.push_str(&line);
                said.push('\n');
            }
        }
        let _ = told.send(Err(said));
    });
    let problem = match tells.recv_timeout(READY_WITHIN) {
        Ok(Ok(())) => return Ok(process),
        Ok(Err(said)) => format!("ended at once: {said}"),
        Err(_) => format!("does not serve within {} s", READY_WITHIN.as_secs()),
    };
    let _ = process.kill();
    let _ = process.wait();
    bail!("{name} {problem}")
}

/// Returns the figures of one test from CSV of the form `"GET","rps","avg","min","p50",...`, whose
/// times are in milliseconds.
fn figures_of(csv: &str, test: &str) -> Option<Figures> {
    let fields = |line: &str| -> Vec<String> {
        line.split(',').map(|field| field.trim().trim_matches('"').to_owned()).collect()
    };
    let line = csv.lines().map(fields).find(|fields| fields.first().is_some_and(|f| f == test))?;
    let number = |at: usize| line.get(at)?.parse::<f64>().ok();
    Some(Figures { per_second: number(1)?, median_us: number(4)? * 1000.0 })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn report(runs: &[Runs], moved: u64) -> String {
    let mut text = format!(
        "\nRedis and redis-benchmark, unmodified, over TCP on 127.0.0.1. Medians of {ROUNDS} rounds in turn;\n{moved} connections moved to shared memory.\n\n"
    );
    text += &format!("{:26}{:^24}{:^24}\n", "", "requests per second", "median latency (µs)");
    text += &format!(
        "{:26}{:>9}{:>9}{:>6}{:>9}{:>9}{:>6}\n",
        "", "plain", "Sojourn", "times", "plain", "Sojourn", "times"
    );
    let rows = LOADS.iter().flat_map(|load| TESTS.iter().map(move |test| (load, test)));
    for ((load, test), runs) in rows.zip(runs) {
        let of = |mode: usize, part: fn(&Figures) -> f64| {
            median(runs.0[mode].iter().map(part).collect())
        };
        let rate = [0, 1].map(|mode| of(mode, |figures| figures.per_second));
        let time = [0, 1].map(|mode| of(mode, |figures| figures.median_us));
        text += &format!(
            "{:22}{test:4}{:>9.0}{:>9.0}{:>6.2}{:>9.0}{:>9.0}{:>6.2}\n",
            load.name,
            rate[0],
            rate[1],
            rate[1] / rate[0].max(1.0),
            time[0],
            time[1],
            time[0] / time[1].max(0.001),
        );
    }
    text += "\n`times`: how many times more requests, how many times less latency, than without Sojourn.";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_both_forms_of_csv() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\"\n\
            \"SET\",\"50000.5\",\"0.1\",\"0.01\",\"0.095\",\"0.2\"\n\"GET\",\"60000\",\"0.1\",\"0.01\",\"0.087\"\n";
        assert_eq!(figures_of(csv, "SET"), Some(Figures { per_second: 50000.5, median_us: 95.0 }));
        assert_eq!(figures_of(csv, "GET"), Some(Figures { per_second: 60000.0, median_us: 87.0 }));
        assert_eq!(figures_of(csv, "INCR"), None);
    }

    #[test]
    fn a_busy_machine_is_noticed() {
        assert_eq!(running("9.58 10.82 9.41 5/200 7245\n"), Some(4));
        assert_eq!(running(""), None);
    }

    #[test]
    fn the_table_has_a_line_for_each_load_and_test() {
        let figures = |per_second, median_us| vec![Figures { per_second, median_us }; ROUNDS];
        let runs = || Runs([figures(1000.0, 50.0), figures(3000.0, 20.0)]);
        let runs: Vec<Runs> = (0..6).map(|_| runs()).collect();
        let text = report(&runs, 3);
        let lines: Vec<_> = text.lines().filter(|line| line.contains("3.00")).collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[0].contains("SET") && lines[0].ends_with("2.50"), "{text}");
    }
}
