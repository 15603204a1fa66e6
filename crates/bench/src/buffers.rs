//! `sojourn-bench buffers`: sending and receiving in place beside `read` and `write`, on the same
//! stream between two processes of this host.
//!
//! Two programs connect by TCP, under Sojourn and plainly. Ways take turns within a round, and a
//! cell is the median of the rounds' ratios. Not here: what the programs do (`ends`).

mod ends;

use anyhow::{Context as _, Result};
use serde::Serialize;
use sojourn_lab::{Mode, Running, Sandbox};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use self::ends::{SHAPES, Shape};
use crate::machine::Machine;
use crate::stats::median;
use crate::table::{Table, bytes, duration, ratio};
use crate::targets::TargetResult;

const LIMIT: Duration = Duration::from_secs(300);

/// One shape under Sojourn or plainly.
#[derive(Debug, Serialize)]
struct Cell {
    under_sojourn: bool,
    /// Space was reserved in the session's ring.
    in_place: bool,
    shape: String,
    /// Nanoseconds of the rounds, per round trip or mebibyte.
    read_write: Vec<f64>,
    buffers: Vec<f64>,
    /// How many times faster the buffers are: the median of the rounds.
    gain: f64,
}

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    cells: Vec<Cell>,
    #[serde(rename = "reach")]
    targets: Vec<TargetResult>,
}

/// One end, in a process of its own.
pub(crate) fn end(words: &[String]) -> Result<()> {
    let (quick, words) = match words {
        [first, rest @ ..] if first == "quick" => (true, rest),
        all => (false, all),
    };
    match words {
        [] => ends::serve(quick),
        [address, ..] => ends::call(address, quick),
    }
}

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool) -> Result<Outcome> {
    let machine = Machine::here();
    println!(
        "In place beside read and write, on one TCP stream of this host; {}, {} processors.\n",
        machine.processor, machine.processors
    );
    let mut cells = Vec::new();
    for mode in [Mode::Sojourn, Mode::Plain] {
        let found = measure(mode, quick)?;
        let is_in_place = found.iter().all(|cell| cell.in_place);
        let what = match (mode, is_in_place) {
            (Mode::Plain, _) => "Plainly: both ways copy through the kernel",
            (Mode::Sojourn, true) => "Under Sojourn: the session is away, the buffers are its ring",
            (Mode::Sojourn, false) => "Under Sojourn, but the session has not moved",
        };
        println!("{what}\n{}", table(&found));
        cells.extend(found);
    }
    let targets = judge(&cells);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome { machine, cells, targets })
}

fn measure(mode: Mode, quick: bool) -> Result<Vec<Cell>> {
    let mut sandbox = Sandbox::new()?;
    sandbox.set("MOVE_AFTER_CALLS", "64");
    let program = std::env::current_exe()?;
    let command = |words: &[&str]| -> Command {
        let mut command = sandbox.command(mode, &program);
        command.arg("buffers-end").args(quick.then_some("quick")).args(words);
        command
    };
    let mut serving = command(&[]).stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    BufReader::new(serving.stdout.take().context("a pipe")?).read_line(&mut address)?;
    let said = Running::start(command(&[address.trim()]))?.finish(LIMIT)?.success("buffers-end")?;
    serving.wait()?;
    let in_place = said.lines().any(|line| line == "in place: true");
    let rounds = |at: usize, way: &str| -> Vec<f64> {
        let words = said.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let own =
            words.filter(|words| words.len() == 3 && words[..2] == [at.to_string().as_str(), way]);
        own.filter_map(|words| words.get(2)?.parse().ok()).collect()
    };
    let cell = |(at, shape): (usize, Shape)| {
        let (read_write, buffers) = (rounds(at, "0"), rounds(at, "1"));
        let gains: Vec<f64> = read_write.iter().zip(&buffers).map(|(one, two)| one / two).collect();
        let gain = median(&gains);
        let under_sojourn = mode == Mode::Sojourn;
        Cell { under_sojourn, in_place, shape: title(shape), read_write, buffers, gain }
    };
    Ok(SHAPES.into_iter().enumerate().map(cell).collect())
}

fn judge(cells: &[Cell]) -> Vec<TargetResult> {
    let gain = |shape: Shape| {
        let cell = |cell: &&Cell| cell.under_sojourn && cell.in_place && cell.shape == title(shape);
        cells.iter().find(cell).map(|cell| cell.gain)
    };
    let of = |shape: Shape, least: f64, what: &str| {
        let target = format!("{}: {what}", title(shape));
        TargetResult::at_least(target, gain(shape), Some(1.0), least)
    };
    vec![
        of(Shape::Bulk(64 << 10), 1.5, "at least 1.5 times as fast"),
        of(Shape::PingPong(1460), 1.0, "never slower"),
        of(Shape::PingPong(1472), 1.0, "never slower"),
    ]
}

fn title(shape: Shape) -> String {
    match shape {
        Shape::Bulk(piece) => format!("1 MiB in pieces of {}", bytes(piece)),
        Shape::PingPong(size) => format!("{size} B to and fro"),
    }
}

fn table(cells: &[Cell]) -> String {
    let mut table = Table::new(["", "read, write", "buffers", "gain"]);
    for cell in cells {
        table.row([
            cell.shape.clone(),
            duration(median(&cell.read_write)),
            duration(median(&cell.buffers)),
            ratio(cell.gain, 1.0),
        ]);
    }
    table.render()
}
