//! `sojourn-bench doors`: what a program's calls cost on their way to the preload library, and what
//! a program's start costs that the loader loads.
//!
//! Every call that is measured is one that the kernel serves. So what it costs more under Sojourn
//! than plainly is the cost of its door. A data call (`write`) goes to the library, which says that
//! the kernel serves it; of a call that concerns no descriptor (`getppid`) the library learns
//! nothing. Plain and Sojourn take turns. Not here: the programs and how they are started
//! (`programs`), calls that the library serves itself (`local`), a server's answers (`papers`).

mod programs;

use anyhow::{Context as _, Result};
use serde::Serialize;

use self::programs::{Program, Programs, Start};
use crate::machine::Machine;
use crate::os;
use crate::stats::{median, percentile, sorted};
use crate::table::Table;
use crate::targets::TargetResult;

/// A way of calls to the preload library.
struct Row {
    title: &'static str,
    program: Program,
    /// The program's word for the call.
    call: &'static str,
    /// The most cycles that the door may cost; `None` for rows that are only compared.
    limit: Option<f64>,
}

const ROWS: [Row; 7] = [
    Row::new("interposed function, dynamic", Program::Dynamic, "write", Some(10.0)),
    Row::new("stdio's tables, dynamic", Program::Dynamic, "stdio", Some(40.0)),
    Row::new("rewritten `write`, static", Program::Static, "write", Some(110.0)),
    Row::new("rewritten `write`, Go", Program::Go, "write", Some(150.0)),
    Row::new("rewritten `getppid`, static", Program::Static, "parent", Some(110.0)),
    Row::new("rewritten `getppid`, Go", Program::Go, "parent", Some(150.0)),
    Row::new("trapped call, static", Program::Trapped, "parent", None),
];

impl Row {
    const fn new(
        title: &'static str,
        program: Program,
        call: &'static str,
        limit: Option<f64>,
    ) -> Self {
        Self { title, program, call, limit }
    }
}

/// A row's figures, in cycles of the time-stamp counter.
#[derive(Debug, Serialize)]
struct Door {
    row: &'static str,
    /// A call plainly: the median of the rounds.
    plain: Option<f64>,
    /// The same under Sojourn.
    sojourn: Option<f64>,
    /// The median of the rounds' differences.
    door: Option<f64>,
    error: Option<String>,
}

/// The start of a program: from its creation to its end, in microseconds; the faster tenth.
#[derive(Debug, Serialize)]
struct Started {
    program: &'static str,
    plain: Option<f64>,
    /// By the loader, with cached sites, and without a cache.
    cached: Option<f64>,
    searched: Option<f64>,
    /// The difference between `cached` and `plain`.
    more: Option<f64>,
    error: Option<String>,
}

/// The results of one run: the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    machine: Machine,
    /// A call of a function, in cycles.
    function: Option<f64>,
    doors: Vec<Door>,
    starts: Vec<Started>,
    #[serde(rename = "reach")]
    targets: Vec<TargetResult>,
}

/// The extent of a run.
struct Extent {
    rounds: usize,
    ms: u32,
    starts: usize,
}

/// Measures, prints the tables, and returns the content of the JSON file.
pub(crate) fn run(quick: bool) -> Result<Outcome> {
    let machine = Machine::here();
    let extent = match quick {
        true => Extent { rounds: 1, ms: 10, starts: 2 },
        false => Extent { rounds: 15, ms: 30, starts: 100 },
    };
    println!(
        "The way to the preload library on {}, load {}. Cycles of the time-stamp counter.\n",
        machine.processor, machine.load
    );
    let programs = Programs::new()?;
    let Doors { function, rows: doors } = doors(&programs, &extent);
    println!("a function call: {} cycles\n{}", number(function), doors_table(&doors));
    let starts: Vec<_> = [Program::Static, Program::Musl, Program::Go]
        .into_iter()
        .map(|program| started(&programs, program, &extent))
        .collect();
    println!("Start to end of a program (us)\n{}", starts_table(&starts));
    let targets = judge(&doors, &starts);
    println!("{}", crate::targets::render(&targets));
    Ok(Outcome { machine, function, doors, starts, targets })
}

/// Returns the limit of the faster tenth: what other processes do in between only ever adds.
fn fast(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| percentile(&sorted(samples), 0.1))
}

fn middle(rounds: &[f64]) -> Option<f64> {
    (!rounds.is_empty()).then(|| median(rounds))
}

/// The figures of a row's rounds, in cycles.
#[derive(Default)]
struct Rounds {
    plain: Vec<f64>,
    under: Vec<f64>,
    error: Option<String>,
}

impl Rounds {
    fn door(self, row: &Row) -> Door {
        let both = self.under.iter().zip(&self.plain);
        let more: Vec<f64> = both.map(|(under, plain)| under - plain).collect();
        let (plain, sojourn) = (middle(&self.plain), middle(&self.under));
        Door { row: row.title, plain, sojourn, door: middle(&more), error: self.error }
    }
}

/// What all rows have measured.
struct Doors {
    /// A call of a function.
    function: Option<f64>,
    rows: Vec<Door>,
}

/// Measures all rows in turns, and a call of a function among them.
fn doors(programs: &Programs, extent: &Extent) -> Doors {
    let cycles = os::cycles_per_ns();
    let call = |program, call, is_under| {
        let samples = programs.samples(program, call, is_under, extent.ms)?;
        anyhow::Ok(fast(&samples).context("no samples")? * cycles)
    };
    let mut function = Vec::new();
    let mut all = ROWS.map(|_| Rounds::default());
    for _ in 0..extent.rounds {
        function.extend(call(Program::Dynamic, "function", false).ok());
        for (row, rounds) in ROWS.iter().zip(&mut all) {
            let both = call(row.program, row.call, false)
                .and_then(|plain| Ok((plain, call(row.program, row.call, true)?)));
            match both {
                Ok((plain, under)) => {
                    rounds.plain.push(plain);
                    rounds.under.push(under);
                }
                Err(error) => rounds.error = Some(format!("{error:#}")),
            }
        }
    }
    let rows = ROWS.iter().zip(all).map(|(row, rounds)| rounds.door(row)).collect();
    Doors { function: middle(&function), rows }
}

/// Measures starts of a program in turns: plainly, with cached sites, and without a cache.
fn started(programs: &Programs, program: Program, extent: &Extent) -> Started {
    const STARTS: [Start; 3] = [Start::Plain, Start::Cached, Start::Searched];
    let mut rounds = STARTS.map(|_| Vec::new());
    let mut error = programs.fill_cache(program).err();
    for _ in 0..extent.starts {
        for (start, rounds) in STARTS.into_iter().zip(&mut rounds) {
            match programs.start(program, start) {
                Ok(us) => rounds.push(us),
                Err(failed) => error = Some(failed),
            }
        }
    }
    let [plain, cached, searched] = rounds.map(|rounds| fast(&rounds));
    let more = cached.zip(plain).map(|(cached, plain)| cached - plain);
    let error = error.map(|error| format!("{error:#}"));
    Started { program: program.title(), plain, cached, searched, more, error }
}

fn number(figure: Option<f64>) -> String {
    figure.map_or("-".into(), |figure| format!("{figure:.0}"))
}

fn limit(limit: Option<f64>) -> String {
    limit.map_or("-".into(), |limit| format!("{limit:.0}"))
}

fn doors_table(doors: &[Door]) -> String {
    let mut table = Table::new(["door", "plain", "sojourn", "door costs", "at most", ""]);
    for (door, row) in doors.iter().zip(&ROWS) {
        let figures = [door.plain, door.sojourn, door.door].map(number);
        let words = [door.row.to_owned()].into_iter().chain(figures);
        table.row(words.chain([limit(row.limit), door.error.clone().unwrap_or_default()]));
    }
    table.row(["rewritten call, dynamic", "-", "-", "-", "20", "not measured yet"]);
    table.render()
}

fn starts_table(starts: &[Started]) -> String {
    let head = ["program", "plain", "cached", "searched", "cached - plain", ""];
    let mut table = Table::new(head);
    for start in starts {
        let figures = [start.plain, start.cached, start.searched, start.more].map(number);
        let words = [start.program.to_owned()].into_iter().chain(figures);
        table.row(words.chain([start.error.clone().unwrap_or_default()]));
    }
    table.render()
}

/// The most that a start may cost with cached sites (us).
const START_US: f64 = 300.0;

fn judge(doors: &[Door], starts: &[Started]) -> Vec<TargetResult> {
    let mut targets: Vec<_> = doors
        .iter()
        .zip(&ROWS)
        .filter_map(|(door, row)| {
            let limit = row.limit?;
            let target = format!("{}: at most {limit:.0} cycles more", row.title);
            Some(TargetResult::at_most(target, door.door, Some(1.0), limit))
        })
        .collect();
    let dynamic = "rewritten call, dynamic: at most 20 cycles more".to_owned();
    targets.push(TargetResult::at_most(dynamic, None, Some(1.0), 20.0));
    targets.extend(starts.iter().map(|start| {
        let target = format!("start, {}: at most {START_US:.0} us more, cached", start.program);
        TargetResult::at_most(target, start.more, Some(1.0), START_US)
    }));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_judged_by_the_difference_and_absence_is_no_success() {
        let door = |row, door| Door { row, plain: None, sojourn: None, door, error: None };
        let [fast, slow] = [Some(9.5), Some(40.5)];
        let doors = [door("a", fast), door("b", slow), door("c", None)];
        let start = |more| Started {
            program: "p",
            plain: None,
            cached: None,
            searched: None,
            more,
            error: None,
        };
        let targets = judge(&doors, &[start(Some(299.0)), start(None)]);
        let reached: Vec<_> = targets.iter().map(|one| one.reached).collect();
        assert_eq!(reached, [Some(true), Some(false), None, None, Some(true), None]);
        assert!(doors_table(&doors).contains("not measured yet"));
    }
}
