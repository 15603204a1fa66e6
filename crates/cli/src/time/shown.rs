//! The output of times: a table for each session with a bar of letters, JSON, or a picture.
//!
//! Not here: the measurement (`time`), the numbers (`sojourn_time`).

use crate::args::Time;
use crate::created::create;
use crate::output::{Table, printable};
use crate::sessions::{PROC, program_of};
use anyhow::{Context as _, Result};
use sojourn_session::ProcessId;
use sojourn_time::picture::{Bar, by_home, letter, letters, svg};
use sojourn_time::{Cell, Direction, Distribution, Report, Row, Session, Taken};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// The number of letters of a whole bar.
const BAR: usize = 60;
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The output's destination and format.
pub(super) struct TimeOutput<'o> {
    options: &'o Time,
}

impl<'o> TimeOutput<'o> {
    pub(super) fn new(options: &'o Time) -> Self {
        Self { options }
    }

    /// Shows the times so far, before the end of the run.
    pub(super) fn again(&self, sessions: &[&Session], taken: &Taken) -> Result<()> {
        let text = self.text(sessions, taken)?;
        let is_screen = self.options.output.is_none() && crate::terminal::terminal().is_some();
        let clear = if is_screen && !self.options.json { CLEAR } else { "" };
        self.write(&format!("{clear}{text}"))
    }

    /// Shows the final times, and draws the picture.
    pub(super) fn last(&self, sessions: &[&Session], taken: &Taken) -> Result<()> {
        if let Some(file) = &self.options.svg {
            let homes = by_home(sessions);
            let bar = |home: &Session| {
                Bar::of(&format!("{} in the {}", home.protocol.word(), home.home.word()), home)
            };
            let bars: Vec<Bar> = homes.iter().map(bar).collect();
            write_file(file, &svg(&bars))?;
        }
        self.again(sessions, taken)
    }

    fn text(&self, sessions: &[&Session], taken: &Taken) -> Result<String> {
        if self.options.json {
            let report = Report::new(sessions, taken);
            return crate::output::json(&report);
        }
        Ok(text(sessions, taken, self.options.sessions))
    }

    /// The report on a program goes to standard error, apart from the program's own output.
    fn write(&self, text: &str) -> Result<()> {
        match (&self.options.output, self.options.command.is_empty()) {
            (Some(file), _) => write_file(file, text),
            (None, true) => crate::output::print(text),
            (None, false) => {
                std::io::stderr().write_all(text.as_bytes()).context("cannot write the report")
            }
        }
    }
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    let write = || -> Result<()> { Ok(create(path)?.write_all(text.as_bytes())?) };
    write().with_context(|| format!("{}: cannot be written", path.display()))
}

/// Formats the report as text.
fn text(sessions: &[&Session], taken: &Taken, at_most: usize) -> String {
    let timed: Vec<&&Session> = sessions.iter().filter(|session| session.chains() > 0).collect();
    let mut text = String::new();
    for session in timed.iter().take(at_most) {
        text.push_str(&table(session));
        text.push('\n');
    }
    let left = timed.len().saturating_sub(at_most);
    if left > 0 {
        let _ = writeln!(text, "More sessions: {left}; `-n` shows them, --json all.\n");
    }
    if timed.is_empty() {
        let calls: u64 = sessions.iter().map(|each| each.send.calls + each.receive.calls).sum();
        let _ = writeln!(
            text,
            "No message was timed: {calls} calls moved data meanwhile. A program that sends and receives in another way (io_uring, \
             sendmmsg, splice) is not seen; a session away from the kernel has a number of its own in `sojourn ss`.\n"
        );
    }
    text + &notes(taken)
}

/// Formats one session.
fn table(session: &Session) -> String {
    let mut text = format!("{} {}", session.protocol.word(), session.name());
    if let Some(local) = session.local {
        let _ = write!(text, "  {local}");
    }
    if let Some(remote) = session.remote {
        let _ = write!(text, " to {remote}");
    }
    let _ = write!(text, "  in the {}", session.home.word());
    if session.process != 0 {
        let program = program_of(Path::new(PROC), ProcessId(session.process));
        let name =
            program.map_or_else(String::new, |program| format!(" ({})", printable(&program)));
        let _ = write!(text, "  process {}{name}", session.process);
    }
    text.push('\n');
    let mut table = Table::new(&["", "LAYER", ">MEAN", ">MEDIAN", ">99 %", ">SHARE"]);
    for direction in [Direction::Send, Direction::Receive] {
        if session.direction_times(direction).calls > 0 {
            add_rows(&mut table, session, direction);
        }
    }
    add_line(&mut table, "network transit", &session.transit);
    add_line(&mut table, "rest of the send call", &session.rest);
    text.push_str(&table.text());
    for direction in [Direction::Send, Direction::Receive] {
        let bar = letters(session, direction, BAR);
        if !bar.is_empty() {
            let _ = writeln!(text, "{:<8}[{bar}]", direction.word());
        }
    }
    for direction in [Direction::Send, Direction::Receive] {
        let way = session.direction_times(direction);
        if way.without > 0 {
            let _ = writeln!(
                text,
                "{}: {} of {} calls were not timed: {}",
                direction.word(),
                way.without,
                way.calls,
                match direction {
                    Direction::Send => "the data left after the call (window, queue)",
                    Direction::Receive => "the data were there already, or came with others",
                }
            );
        }
    }
    text
}

fn add_rows(table: &mut Table, session: &Session, direction: Direction) {
    let total = &session.direction_times(direction).total;
    for row in Row::ALL.into_iter().filter(|row| row.direction() == direction) {
        let mark = letter(row).to_string();
        let title = row.title().to_owned();
        let times = session.row(row);
        match (session.cell(row), session.share_ns(row), total.mean_ns()) {
            (Cell::Timed, Some(mean), Some(all)) => table.row(vec![
                mark,
                title,
                us(mean),
                quantile(times, 0.5),
                quantile(times, 0.99),
                format!("{:.1} %", 100.0 * mean / all.max(1.0)),
            ]),
            (Cell::InNext, ..) => table.row(vec![
                mark,
                title,
                "in the next".into(),
                String::new(),
                String::new(),
                String::new(),
            ]),
            _ => {}
        }
    }
    add_line(table, &format!("{}, {} messages", direction.word(), total.count()), total);
}

/// Adds a line that is no row of a layer: a sum, or times beside the rows.
fn add_line(table: &mut Table, title: &str, times: &Distribution) {
    let Some(mean) = times.mean_ns() else { return };
    table.row(vec![
        String::new(),
        title.to_owned(),
        us(mean),
        quantile(times, 0.5),
        quantile(times, 0.99),
        String::new(),
    ]);
}

fn us(ns: f64) -> String {
    format!("{:.2} µs", ns / 1e3)
}

fn quantile(times: &Distribution, part: f64) -> String {
    times.quantile_ns(part).map_or_else(String::new, |ns| us(ns as f64))
}

/// Formats the stamps' cost and the numbers of lost events.
fn notes(taken: &Taken) -> String {
    let mut text = String::new();
    if let Some(cost) = taken.cost {
        let _ = writeln!(
            text,
            "A stamp takes {} ns here, as measured at the start; the time that stamps took is taken off.",
            cost.whole_ns
        );
    }
    if let Some(clock) = taken.clock_ns {
        let _ = writeln!(
            text,
            "The program stamps its own layers; a reading of its clock takes {clock} ns, which are taken off each row. \
             All rows are means: it keeps sums only."
        );
    }
    if let Some(refusal) = &taken.refusal {
        let _ = writeln!(
            text,
            "Rows \"in the next\" are measured with it: this kernel does not let programs look at its functions ({refusal}). One built with \
             CONFIG_FUNCTION_TRACER and not locked down, as the distributions' are, shows each."
        );
    } else if !taken.missing.is_empty() {
        let _ = writeln!(
            text,
            "This kernel has no function {}: their rows are measured with the next.",
            taken.missing.join(", ")
        );
    }
    for (count, what) in [
        (taken.lost, "events were lost: they came faster than they could be read"),
        (taken.faults.disordered, "messages were left out: their stamps were out of order"),
        (taken.faults.clamped, "parts were shorter than the stamps in them: taken for zero"),
        (taken.faults.dropped, "arrivals were left out: no call took them"),
        (taken.faults.beyond, "calls were left out: of more sessions than are told apart"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}.");
        }
    }
    text
}
