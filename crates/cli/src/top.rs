//! `sojourn top`: the busiest sessions, again and again.
//!
//! On a terminal each list replaces the one before; in a file the lists follow each other. Ctrl-C
//! ends the command.

use crate::args::Top;
use crate::client::Client;
use crate::output::{Table, bytes, print};
use crate::sessions::{Row, gather};
use crate::terminal::{Terminal, terminal};
use anyhow::Result;
use sojourn_session::{ProcessId, StreamNumber};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const CLEAR: &str = "\x1b[H\x1b[2J";

/// One end of a session that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AwayEnd {
    stream: StreamNumber,
    pid: ProcessId,
}

impl AwayEnd {
    fn of(row: &Row) -> Option<Self> {
        Some(Self { stream: row.stream?, pid: row.pid })
    }
}

/// The bytes of both directions.
type Totals = HashMap<AwayEnd, u64>;

/// Shows the list until a signal comes, or for the given number of times.
pub(crate) fn top(options: &Top) -> Result<()> {
    let delay = Duration::from_secs(options.delay.into());
    let mut before: Option<(Instant, Totals)> = None;
    let mut looks = 0;
    loop {
        // Each round makes a new connection, because the server may have been replaced.
        let mut client = Client::connect(&options.server_args)?;
        let rows = gather(Some(&mut client), &options.filter, false)?;
        let now = Instant::now();
        let elapsed = before.as_ref().map(|(then, _)| now - *then);
        let empty = Totals::new();
        let then = before.as_ref().map_or(&empty, |(_, totals)| totals);
        let terminal = terminal();
        let body = text(&rows, then, elapsed, terminal.map(|terminal| terminal.columns));
        let shown = terminal.map_or(body.clone(), |terminal| fit(&body, terminal));
        let clear = if terminal.is_some() { CLEAR } else { "" };
        print(&format!("{clear}{}\n{shown}\n", client.address))?;
        before = Some((now, totals(&rows)));
        looks += 1;
        if options.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        std::thread::sleep(delay);
    }
}

/// Cuts the list to the screen's size, below the line with the server's address. A line that is too
/// long would take two lines, and scroll the first line away.
fn fit(body: &str, terminal: Terminal) -> String {
    let cut = |line: &str| line.chars().take(terminal.columns).collect::<String>();
    let lines: Vec<String> = body.lines().take(terminal.lines.max(4) - 2).map(cut).collect();
    lines.join("\n")
}

fn totals(rows: &[Row]) -> Totals {
    let known = rows.iter().filter_map(|row| Some((AwayEnd::of(row)?, total(row))));
    known.collect()
}

fn total(row: &Row) -> u64 {
    row.sent.unwrap_or(0).saturating_add(row.received.unwrap_or(0))
}

/// Formats the list, the busiest session first. Sessions without a rate yet are sorted by their
/// bytes. The most important columns come first, because a narrow screen cuts the last ones.
fn text(rows: &[Row], then: &Totals, elapsed: Option<Duration>, columns: Option<usize>) -> String {
    let rate = |row: &Row| {
        let elapsed = elapsed.filter(|elapsed| !elapsed.is_zero())?;
        let since = total(row).saturating_sub(*then.get(&AwayEnd::of(row)?)?);
        Some((since as f64 / elapsed.as_secs_f64()) as u64)
    };
    let mut rated: Vec<_> = rows.iter().map(|row| (rate(row), row)).collect();
    rated.sort_by_key(|(rate, row)| std::cmp::Reverse((*rate, total(row))));
    let mut table = Table::new(&[
        ">STREAM",
        ">PER SECOND",
        ">BYTES",
        "KIND",
        "HOME",
        ">PID",
        "PROGRAM",
        "REASON",
        "~TO",
    ]);
    for (rate, row) in rated {
        table.row(vec![
            row.stream.map_or("-".into(), |number| number.to_string()),
            rate.map_or("-".into(), bytes),
            row.sent.map_or("-".into(), |_| bytes(total(row))),
            row.kind.into(),
            row.home.into(),
            row.pid.to_string(),
            row.program.clone(),
            if row.is_in_kernel() { row.reason.into() } else { "-".into() },
            row.to.clone(),
        ]);
    }
    table.text_within(columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::{joined, waiting};

    #[test]
    fn rates_come_from_two_looks_and_the_busiest_is_first() {
        let mut busy = joined();
        busy.stream = Some(StreamNumber(8));
        busy.sent = Some(11 << 20);
        let rows = [waiting(), joined(), busy];
        let mut then = totals(&rows);
        then.insert(
            AwayEnd { stream: StreamNumber(8), pid: rows[2].pid },
            total(&rows[2]) - (4 << 20),
        );
        let text = text(&rows, &then, Some(Duration::from_secs(2)), None);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].trim_start().starts_with('8'), "{text}");
        assert!(lines[1].contains("2.0 MiB"), "{text}");
        assert!(lines[3].contains("no-peer"), "{text}");
    }

    #[test]
    fn no_line_takes_two_and_the_headings_stay() {
        let mut long = joined();
        long.to = format!("/run/{}.sock", "long".repeat(50));
        let rows = vec![long; 50];
        let terminal = Terminal { lines: 10, columns: 60 };
        let text = text(&rows, &Totals::new(), None, Some(terminal.columns));
        let shown = fit(&text, terminal);
        assert_eq!(shown.lines().count(), 8, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
        assert!(shown.lines().next().unwrap().contains("STREAM"), "{shown}");
    }
}
